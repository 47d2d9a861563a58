"""Campaigns of programs: in a shell, with the faults that wrappers have, and with a look at the data too early."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.own_trainer.test_run_command import log_of, place, run, train_bench  # noqa: F401
from tests.sandbox import ROOT
from tests.selection import others_in_full

BAD = ROOT / "tests" / "own_trainer" / "bad_trainer.py"
PAGE = ROOT / "docs" / "log-protocol.md"

MEAN_RULES = """\
round: mini-1.0
benchmarks:
  mean:
    runs: 3
    unit: sample
    target: {nearness: {at_least: 0.99}}
    schedule: {name: every, first: [100], period: 100}
hyperparameters:
  learning_rate: {exactly: 0.1}
"""

MEAN_VALUES = """\
# The mean of some numbers.
defaults: [mean_schema, _self_]

benchmark: mean
reference: mean
ruleset: mini-1.0
train_samples: 2000
eval_samples: 2000
evaluation: {until: 2000}
hyperparameters: {global_batch_size: 20, learning_rate: 0.1}
"""


def findings(folder, index=0):
    (entry,) = json.loads(train_bench("judge", str(folder), "--json").stdout)["entries"]
    return " ".join(finding["message"] for finding in entry["runs"][index]["findings"])


@pytest.mark.full
def test_the_shell_script_of_the_page_makes_a_valid_score(place, monkeypatch):  # noqa: F811
    folder = place / "mean"
    (folder / "conf" / "benchmark").mkdir(parents=True)
    (folder / "rules.yaml").write_text(MEAN_RULES)
    (folder / "conf" / "benchmark" / "mean.yaml").write_text(MEAN_VALUES)
    monkeypatch.setenv("TRAIN_BENCH_PATH", str(folder))
    (script,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    Path("mean.sh").write_text(script)
    ran = train_bench("run", "benchmark=mean", "command=bash mean.sh", "output=out")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\nVALID" in ran.stdout
    assert "the clock is that of train_bench" in ran.stdout


def test_a_call_that_is_refused_ends_the_run_with_its_sentence(place):  # noqa: F811
    Path("bad.sh").write_text('echo \'{"call": "run_start"}\' >> "$TRAIN_BENCH_CALLS"; sleep 60\n')
    ran = run(command="bash bad.sh")
    assert ran.returncode == 1
    assert "call 1: run_start() was called before anything else; allowed now: init_start()" in ran.stderr


FAULTS = [
    ("no initialisation", "init_start and init_stop have the same time"),
    ("cache_clear as text", "cache_clear is 'True'; allowed: one of True, False"),
    ("evaluations without an interval", "eval_accuracy is 0.95; allowed: only after evaluation"),
    ("steps for epochs", "First evaluation: evaluation.first is 100; allowed: 1"),
    ("the target is looked at later", "the run went on"),
    ("two ends", "its program logged 1 run_start and 2 run_stop"),
    ("another status", "run_stop"),
    ("two meanings of train_samples", "train_samples is logged 2 times with different values"),
    ("written for another benchmark", "submission_benchmark is 'deepseekv3'"),
    ("steps for samples", "eval_start(samples=10): this evaluation is due at 100 samples"),
    ("every rank writes", "a run has one rank 0"),
    ("no eval_start", "report() was called after block_start(); allowed now: eval_start()"),
]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    others_in_full(FAULTS, FAULTS[:1]),
)
def test_the_faults_of_published_wrappers_are_named(place, fault, sentence):  # noqa: F811
    ran = run("runs=1", command=shlex.join([sys.executable, str(BAD), fault]))
    assert ran.returncode == 1
    errors = "".join(path.read_text() for path in Path("out/ranks/run_0").glob("*.stderr"))
    told = ran.stdout + ran.stderr + errors + findings("out")
    assert sentence in told, told


def data(place):  # noqa: F811
    folder = place / "data"
    folder.mkdir()
    (folder / "train.bin").write_bytes(b"1" * 100)
    return folder


LOOKS = """
import time
from train_bench import Benchmark
one = Benchmark()
one.announce(**one.hyperparameters)
one.init_start()
one.weights_initialized("all")
{before}
time.sleep(0.05)
one.init_stop()
one.run_start(train_samples=100, eval_samples=10)
time.sleep(0.05)
open(one.data_dir / "train.bin").read()
for mark in one.blocks():
    one.eval_start(samples=mark.count)
    one.report(0.5 if mark.epoch_num < 3 + one.run else 0.95)
"""


def test_data_that_are_read_before_the_clock_starts_are_named(place):  # noqa: F811
    Path("early.py").write_text(LOOKS.format(before='open(one.data_dir / "train.bin").read()'))
    ran = run("runs=1", f"data_dir={data(place)}", command=f"{sys.executable} early.py")
    assert "1 file(s) of" in findings("out") and "the first of them train.bin" in findings("out"), ran.stdout
    (seen,) = [line["value"] for line in log_of("out") if line["key"] == "data_before_run_start"]
    assert (seen["files"], seen["first"]) == (1, ["train.bin"])
    times = {line["key"]: line["time_ms"] for line in log_of("out")}
    marked_ms = Path("out/ranks/run_0/job_0.json").stat().st_mtime * 1000
    assert times["init_start"] < marked_ms < times["run_start"] + 1, (
        "its run_start leaves a mark for the watch"
    )


@pytest.mark.full
def test_data_that_are_read_afterwards_are_not_and_the_score_says_that_somebody_looked(place):  # noqa: F811
    Path("late.py").write_text(LOOKS.format(before=""))
    ran = run(f"data_dir={data(place)}", command=f"{sys.executable} late.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "opened before run_start" not in findings("out")
    assert "the data files opened before run_start were recorded" in ran.stdout
