"""The steps of the examples for continuous integration, run as the shells of runners run them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.own_trainer.test_run_command import place  # noqa: F401
from tests.sandbox import ROOT

EXAMPLES = ROOT / "examples" / "continuous_integration"

TRAINER = ROOT / "tests" / "own_trainer" / "programs" / "by_hand.py"


def shell(script, **variables):
    """What a runner makes of the lines of a step: a shell that ends with the first error. `pip` installs nothing here,
    and refuses what is no package; `gh` keeps what it is told."""
    shims = Path("../bin")
    shims.mkdir(exist_ok=True)
    for name, line in (
        ("train-bench", f'exec {shlex.quote(sys.executable)} -m train_bench "$@"'),
        ("python", f'exec {shlex.quote(sys.executable)} "$@"'),
        ("pip", 'test "$1" = install && test -e "$2/pyproject.toml"'),
        ("gh", f'echo "$@" > {shims.resolve()}/gh.txt; cat "$5" >> {shims.resolve()}/gh.txt'),
    ):
        (shims / name).write_text(f"#!/bin/sh\n{line}\n")
        (shims / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{shims.resolve()}:{os.environ['PATH']}"} | variables
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )


def trainer(path, milliseconds):
    """A program that takes so long for an epoch, a little longer in each run: runs of equal times are no evidence."""
    text, pace = TRAINER.read_text(), '0.001 * (1 + JOB["run"])'
    assert pace in text
    path.write_text(text.replace(pace, f'{milliseconds / 1000} * (1 + 0.004 * JOB["run"])'))


def git(*words):
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def commit(milliseconds):
    """A commit of the trainer that takes so long for an epoch. Returns its name."""
    trainer(Path("train.py"), milliseconds)
    git("add", ".")
    git("commit", "--quiet", "--allow-empty", "-m", f"train: take {milliseconds:g} ms")
    return git("rev-parse", "HEAD")


@pytest.fixture
def repository(place, monkeypatch):  # noqa: F811
    """A repository with a benchmark, in which the tests work."""
    shutil.copytree(place / "waves", "digits")
    for path in Path("digits").rglob("*.yaml"):
        path.write_text(path.read_text().replace("waves", "digits"))
    Path("digits/conf/benchmark/waves.yaml").rename("digits/conf/benchmark/digits.yaml")
    monkeypatch.delenv("TRAIN_BENCH_PATH")
    git("init", "--quiet", "--initial-branch=main")
    return place


VARIABLES = {"TRAIN_BENCH": str(ROOT), "TRAINER": "python train.py converge --seed {seed}"}


def steps_of(job):
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    steps = {step.get("name"): step.get("run") for step in workflow["jobs"][job]["steps"]}
    return steps, workflow["env"] | VARIABLES


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, ""), (1, "does not train bit by bit"), (2, "is not known"), (3, "is not known")],
)
def test_the_step_for_arithmetic_says_what_its_gate_found(tmp_path, monkeypatch, code, said):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    steps, _ = steps_of("pull_request")
    ran = shell(f"train-bench() {{ return {code}; }}\n{steps['Arithmetic']}")
    assert ran.returncode == 0 and said in ran.stdout, ran.stdout + ran.stderr
    assert bool(ran.stdout) is bool(code)


@pytest.mark.full
@pytest.mark.parametrize(("slowdown", "code"), [(1.15, 1), (1.0, 0)])
def test_the_requests_of_github_and_gitlab_fail_for_a_planted_slow_down_of_15_percent(
    repository, slowdown, code
):
    base, change = commit(200), commit(200 * slowdown)
    steps, variables = steps_of("pull_request")
    words = variables | {"BASE": base, "CHANGE": change, "NUMBER": "7"}
    assert shell(steps["Install"], **words).returncode == 0
    ran = shell(steps["Compare"], **words)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ("B is slower than A by more than 3 %" if code else "B is not slower than A") in ran.stdout
    known = int(re.search(r"Decided after (\d+) of at most 10 pairs", ran.stdout)[1])
    assert known < 10 or not code
    assert len(list(Path("pair/b").glob("result_*.txt"))) == known, "training went on"
    assert Path("answer.html").exists()
    assert git("worktree", "list").count("\n") == 0
    arithmetic = shell(steps["Arithmetic"], **words)
    assert arithmetic.returncode == 0 and "B trains as A does" in arithmetic.stdout, arithmetic
    assert "::warning::" not in arithmetic.stdout
    assert shell(steps["Comment"], **words).returncode == 0
    said = Path("../bin/gh.txt").read_text()
    assert said.startswith("pr comment 7 --body-file answer.txt") and "than A by more than 3 %" in said

    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["time to train"]
    words = job["variables"] | VARIABLES | {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_COMMIT_SHA": change}
    # The same options and folder as above: what was carried out there is read, and nothing is trained again.
    again = shell("\n".join(job["script"]), **{name: str(value) for name, value in words.items()})
    assert again.returncode == code, again.stdout + again.stderr
    assert f"Decided after {known} of at most 10 pairs" in again.stdout
    assert "B trains as A does" in again.stdout


@pytest.mark.full
def test_the_nights_of_github_are_told_apart_from_a_slow_one(repository):
    steps, variables = steps_of("nightly")
    trainer(Path("train.py"), 200)
    variables |= {"NIGHTS": str(Path("nights").resolve()), "GITHUB_RUN_ATTEMPT": "1"}
    assert shell(steps["Install"], **variables).returncode == 0

    def night(number):
        words = variables | {"GITHUB_RUN_ID": str(number)}
        trained = shell(steps["Train"], **words)
        assert trained.returncode == 0, trained.stdout + trained.stderr
        time.sleep(1)
        return shell(steps["Gate"], **words)

    assert "There is no history" in night(1).stdout
    for number in (2, 3, 4, 5):
        later = night(number)
    assert later.returncode == 0, later.stdout + later.stderr
    trainer(Path("train.py"), 230)
    slow = night(6)
    assert slow.returncode == 1, slow.stdout + slow.stderr
    assert "::error::Slower" in slow.stdout
    score = json.loads((Path("nights") / "6-1" / "score.json").read_text())
    assert score["valid"]
