"""The quality of a user's own program, measured by an evaluator that it does not start."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.own_trainer.test_run_command import log_of, place, train_bench  # noqa: F401
from train_bench.core.job import Command
from train_bench.errors import LaunchError
from train_bench.own_trainer.evaluator import Evaluator

TRAINER = """
import json, os, sys
from pathlib import Path
from train_bench import Benchmark
one = Benchmark()
one.announce(**one.hyperparameters)
one.init_start()
one.weights_initialized("all")
one.init_stop()
one.run_start(train_samples=100, eval_samples=10)
print("labels:", Path("secret/labels.json").read_text() if Path("secret/labels.json").exists() else "")
for mark in one.blocks():
    one.eval_start(samples=mark.count)
    right = mark.epoch_num >= 3 + one.run
    Path("answers.json").write_text(json.dumps({"run": one.run, "answers": [1] * (10 if right else 5)}))
    {call}
"""

EVALUATOR = """
import json, sys
labels, handed = (json.load(open(name)) for name in sys.argv[1:])
print("some words")
print(json.dumps({"accuracy": sum(map(int.__eq__, labels, handed["answers"])) / len(labels)}))
"""


@pytest.fixture
def secret(place):  # noqa: F811
    Path("secret").mkdir()
    Path("secret/labels.json").write_text("[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
    Path("secret/evaluate.py").write_text(EVALUATOR)
    return Path("secret").absolute()


def run(*words, call='one.hand_over("answers.json")'):
    Path("train.py").write_text(TRAINER.replace("{call}", call))
    evaluator = shlex.join([sys.executable, "-S", "secret/evaluate.py", "secret/labels.json"])
    return train_bench(
        "run",
        "benchmark=waves",
        f"command={sys.executable} train.py",
        f"evaluator={evaluator} {{handed}}",
        "output=out",
        *words,
    )


def seen(index=0):
    return json.loads(Path("out", "attempts", f"run_{index}_1.json").read_text())["observed"]["evaluator"]


@pytest.mark.slow
def test_the_evaluator_measures_what_is_handed_over_and_the_verdict_says_so(secret):
    ran = run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    logged = [line["value"] for line in log_of("out") if line["key"] == "eval_accuracy"]
    assert logged == [0.5, 0.5, 1.0]
    assert [one["metrics"] for one in seen()["evaluations"]] == [{"accuracy": value} for value in logged]
    assert set(seen()["files"]) == {str(secret / "labels.json"), str(secret / "evaluate.py")}
    read = Path("out/ranks/run_0/rank_0.stdout").read_text().partition("labels: ")[2].strip()
    assert (read == "") is seen()["hidden"]
    assert "VALID; quality measured by the evaluator" in ran.stdout
    assert ("which the program could not read" in ran.stdout) is seen()["hidden"]


def test_a_program_that_reports_its_own_quality_is_refused(secret):
    ran = run("runs=1", call="one.report(0.95)")
    assert ran.returncode == 1
    assert "this run has an evaluator, which measures the quality; call hand_over(FILE)" in ran.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluator=true {handed}"], "a reference evaluates itself"),
        (["command=true", "evaluator_off_clock=true"], "evaluator_off_clock=true is for an evaluator="),
        (["command=true", "evaluator=cat . {handed}"], "which the program works in or runs"),
        (
            ["command=true", "evaluator=cat {seed} {hand}"],
            "evaluator= names {hand}, which stands for nothing",
        ),
    ],
)
def test_an_evaluator_that_cannot_be_is_refused(place, words, sentence):  # noqa: F811
    benchmark = "waves" if "command=true" in words else "resnet_mini"
    ran = train_bench("run", f"benchmark={benchmark}", "output=out", *words)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert sentence in ran.stderr


def evaluator(secret, tmp_path):
    command = Command(
        argv=(sys.executable, "-S", "secret/evaluate.py", "secret/labels.json", "{handed}"),
        cwd=str(secret.parent),
    )
    return Evaluator(command, {}, tmp_path / "copies", lambda: None)


@pytest.mark.parametrize("way", [Path.symlink_to, Path.hardlink_to])
def test_a_way_to_the_labels_is_no_answer(secret, tmp_path, way):
    one = evaluator(secret, tmp_path)
    way(Path("answers.json"), secret / "labels.json")
    with pytest.raises(LaunchError, match="leads to a file of the evaluator"):
        one.evaluate(str(Path("answers.json").absolute()))
    assert one.evaluations == []


def test_an_evaluator_that_changes_is_noted(secret, tmp_path):
    one = evaluator(secret, tmp_path)
    Path("answers.json").write_text('{"answers": [1, 0]}')
    one.evaluate("answers.json")
    Path("secret/labels.json").write_text("[1, 0]")
    assert one.evaluate("answers.json") == {"accuracy": 1.0}
    first, second = one.as_json()["evaluations"]
    assert "changed" not in first
    assert second["changed"] == [str(secret / "labels.json")]
    assert first["handed"] == second["handed"]


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("print('good')", "the evaluator printed 'good'"),
        ("print('{}')", "the evaluator printed '{}'"),
        ("sys.exit('no labels')", "the evaluator ended with exit code 1: no labels"),
    ],
)
def test_an_evaluator_without_an_answer_is_a_sentence(secret, tmp_path, printed, sentence):
    Path("secret/evaluate.py").write_text(f"import sys\n{printed}\n")
    Path("answers.json").write_text("[]")
    with pytest.raises(LaunchError, match=sentence):
        evaluator(secret, tmp_path).evaluate("answers.json")
