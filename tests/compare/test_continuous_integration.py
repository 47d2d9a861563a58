"""The steps of the examples for continuous integration, run as the shells of runners run them."""

import json
import os
import re
import shlex
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
    """What a runner makes of the lines of a step: a shell that ends with the first error."""
    shims = Path("bin")
    shims.mkdir(exist_ok=True)
    for name, words in (("train-bench", [sys.executable, "-m", "train_bench"]), ("python", [sys.executable])):
        (shims / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
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
    path.parent.mkdir(parents=True, exist_ok=True)
    text, pace = TRAINER.read_text(), '0.001 * (1 + JOB["run"])'
    assert pace in text
    path.write_text(text.replace(pace, f'{milliseconds / 1000} * (1 + 0.004 * JOB["run"])'))


@pytest.mark.full
@pytest.mark.parametrize(("slowdown", "code"), [(1.15, 1), (1.0, 0)])
def test_the_merge_request_of_gitlab_fails_for_a_planted_slow_down_of_15_percent_before_all_runs(
    place,  # noqa: F811
    slowdown,
    code,
):
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["time to train"]
    trainer(Path("before/train.py"), 200)
    trainer(Path("train.py"), 200 * slowdown)
    variables = job["variables"] | {
        "TRAINING": "benchmark=waves",
        "TRAINER": "train.py converge --seed {seed}",
        "LOOK_SECONDS": "1",
    }
    checkout, *steps = job["script"]
    assert checkout.startswith("git worktree add --force before")
    ran = shell("\n".join(steps), **{name: str(value) for name, value in variables.items()})
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ("B is slower than A by more than 3 %" if code else "B is not slower than A") in ran.stdout
    if code:
        known = int(re.search(r"Decided after (\d+) of at most 10 pairs", ran.stdout)[1])
        assert known < 10
        assert len(list(Path("pair/b").glob("result_*.txt"))) < 10, "training went on"


@pytest.mark.full
def test_the_nights_of_github_are_told_apart_from_a_slow_one(place):  # noqa: F811
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    steps = {step.get("name"): step.get("run") for step in workflow["jobs"]["nightly"]["steps"]}
    trainer(Path("train.py"), 200)
    variables = {"NIGHTS": str(Path("nights").resolve()), "GITHUB_RUN_ATTEMPT": "1"}

    def night(number):
        train = steps["Train"].replace(
            "train-bench run", "train-bench run 'command=python train.py converge'"
        )
        words = variables | {"GITHUB_RUN_ID": str(number), "TRAINING": "benchmark=waves seed=1"}
        trained = shell(train, **words)
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
