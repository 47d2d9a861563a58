"""The shipped reference convergence points are the evidence that mini benchmarks are honest."""

import json
from collections import defaultdict

import pytest

from tests.references import configs
from tests.selection import others_in_full
from train_bench.plan import discover
from train_bench.rules import ruleset

ONE_SIZE = ["minigo_mini"]
"""Its full scale has points in no round; the small one has them at its own batch size."""

MINI = [name for name in discover.variants() if name.endswith("_mini")]


def records_of(name):
    described = discover.describe_variant(name)
    path = discover.PACKAGE / "rcp" / described["ruleset"] / f"{described['reference']}.json"
    records = json.loads(path.read_text()).values()
    return [record for record in records if record["Benchmark"] == described["benchmark"]]


def rules_of(name):
    described = discover.describe_variant(name)
    return ruleset.load(described["ruleset"]).benchmark(described["benchmark"])


def values_of(record):
    return next(values for key, values in record.items() if key.endswith("to converge"))


@pytest.mark.parametrize("name", MINI)
def test_a_mini_benchmark_has_points_of_ten_runs_at_three_batch_sizes_or_its_only_one(name):
    sizes = defaultdict(int)
    for record in records_of(name):
        sizes[record["BS"]] += len(values_of(record))
    assert len(sizes) >= (1 if name in ONE_SIZE else 3)
    assert min(sizes.values()) >= 2 * rules_of(name).runs


@pytest.mark.parametrize("name", MINI)
def test_three_evaluations_come_before_the_target_in_every_reference_run(name):
    for record in records_of(name):
        rule = rules_of(name).schedule_at(record["BS"])
        for value in values_of(record):
            assert (value - rule.default().first) / rule.period >= 3


@pytest.mark.parametrize("name", MINI)
def test_reference_runs_do_not_all_need_the_same(name):
    for record in records_of(name):
        assert len(set(values_of(record))) > 1


@pytest.mark.parametrize(
    "variant", others_in_full([name for name in discover.variants() if "_mini" in name], MINI)
)
def test_a_run_is_given_about_twice_what_the_slowest_reference_run_needed(variant):
    described = discover.describe_variant(variant)
    config = getattr(configs, described["reference"])(variant)
    rule = rules_of(variant).schedule_at(config.hyperparameters.global_batch_size)
    for record in records_of(variant):
        if record["BS"] == config.hyperparameters.global_batch_size:
            start = getattr(rule, "start", 0)
            allowed = (config.evaluation.until - start) / (max(values_of(record)) - start)
            assert 1.9 <= allowed <= 2.1


@pytest.mark.parametrize("name", MINI)
def test_points_were_made_in_fp32(name):
    assert all("fp32" in record["Platform"] for record in records_of(name))
