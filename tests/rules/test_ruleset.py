"""Rounds: found by name, complete, and in agreement with their rule files."""

import importlib.metadata
import shutil
import subprocess
import sys

import pytest

from train_bench.errors import UnknownName
from train_bench.event import Event
from train_bench.quality import Quality
from train_bench.rules import ruleset
from train_bench.rules.checks import check

ALL = [
    pytest.param(ruleset.load(name).benchmark(benchmark), id=f"{name}/{benchmark}")
    for name in ruleset.names()
    for benchmark in ruleset.load(name).benchmarks
]


def missed_target(rules, value):
    events = [
        Event(key="submission_division", value="closed", time_ms=0),
        Event(key="submission_benchmark", value=rules.name, time_ms=0),
        Event(key="eval_accuracy", value=value, time_ms=0, metadata={"epoch_num": 1}),
    ]
    return [failure for failure in check(rules, events) if failure.kind == "target"]


def test_both_rounds_are_known():
    assert {"mini-1.0", "training-1.1.0"} <= set(ruleset.names())


def test_an_unknown_ruleset_names_the_nearest():
    with pytest.raises(UnknownName, match=r"Did you mean 'mini-1\.0'"):
        ruleset.load("mini-1")


def test_an_unknown_benchmark_names_the_nearest():
    rules = ruleset.load("mini-1.0")
    with pytest.raises(UnknownName, match="Did you mean 'resnet_mini'"):
        rules.benchmark("resnet_mimi")


@pytest.mark.parametrize("rules", ALL)
def test_the_table_and_the_rule_file_have_the_same_target(rules):
    (threshold,) = rules.target.thresholds
    assert threshold.higher_is_better
    assert not missed_target(rules, threshold.value)
    assert missed_target(rules, threshold.value - 1e-9)
    assert rules.target.reached(Quality(metrics={threshold.metric: threshold.value}))


@pytest.mark.parametrize("rules", ALL)
def test_the_default_schedule_is_allowed(rules):
    default = rules.schedule.default()
    assert rules.schedule.refuse(default.first, default.period) is None


def test_the_full_scale_may_start_to_evaluate_at_any_of_the_first_four_epochs():
    schedule = ruleset.load("training-1.1.0").benchmark("resnet").schedule
    assert [first for first in range(8) if schedule.refuse(first, 4) is None] == [1, 2, 3, 4]
    assert schedule.refuse(1, 5) is not None
    assert schedule.refuse(None, None) is not None


def test_an_official_round_allows_neither_fixed_seeds_nor_warm_caches():
    rules = ruleset.load("training-1.1.0").benchmark("resnet")
    assert (rules.fixed_seeds_allowed, rules.uncleared_cache_allowed) == (False, False)


@pytest.fixture
def copied_rounds(tmp_path, monkeypatch):
    shutil.copytree(ruleset.ROUNDS, tmp_path / "rounds")
    monkeypatch.setattr(ruleset, "ROUNDS", tmp_path / "rounds")
    return tmp_path / "rounds"


def fresh_digest():
    return ruleset.load.__wrapped__("mini-1.0").digest


def test_the_digest_is_the_same_for_the_same_rules(copied_rounds):
    assert fresh_digest() == fresh_digest() == ruleset.load("mini-1.0").digest


@pytest.mark.parametrize("file", ["mini-1.0.yaml", "mini-1.0/resnet.yaml"])
def test_the_digest_changes_with_the_table_and_with_a_rule_file(file, copied_rounds):
    before = fresh_digest()
    path = copied_rounds / file
    path.write_text(path.read_text() + "# changed\n")
    assert fresh_digest() != before


def test_the_digest_changes_with_the_version_of_the_package(monkeypatch):
    before = fresh_digest()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.0")
    assert fresh_digest() != before


@pytest.mark.parametrize("change", [("runs: 5", "rnus: 5"), ("start:", "begin:"), ("    drop: 1\n", "")])
def test_a_misspelt_or_missing_field_of_a_table_is_refused(change, copied_rounds):
    path = copied_rounds / "mini-1.0.yaml"
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match="unknown or missing"):
        ruleset.load.__wrapped__("mini-1.0")


def test_a_benchmark_given_twice_in_a_table_is_refused(copied_rounds):
    path = copied_rounds / "mini-1.0.yaml"
    rows = path.read_text().partition("benchmarks:\n")[2]
    path.write_text(path.read_text() + rows.replace("runs: 5", "runs: 1"))
    with pytest.raises(ValueError):
        ruleset.load.__wrapped__("mini-1.0")


def test_the_rules_load_without_the_packages_that_are_slow_to_import():
    code = (
        "import sys; from train_bench.rules import ruleset; ruleset.load('training-1.1.0'); "
        "import train_bench.judge.tree; "
        "print([name for name in ('mlperf_logging', 'torch', 'hydra', 'scipy', 'numpy') if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
