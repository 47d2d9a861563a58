"""False alarms of the RCP test in rounds of our own: how often an honest campaign would be refused."""

import math

import pytest

from bench.studies.false_alarms import probability_of_failing
from train_bench.judge import rcp
from train_bench.plan import discover
from train_bench.rules import ruleset

MINI = ruleset.load("mini-1.0")


def points():
    for name in MINI.benchmarks:
        rules = MINI.benchmark(name)
        for point in rcp.load(rules, discover.rcp_folders()):
            yield pytest.param(rules, point, id=f"{name}-{point.batch_size}")


@pytest.mark.parametrize(("rules", "point"), list(points()))
def test_a_campaign_of_the_runs_of_a_point_fails_less_than_once_in_a_thousand(rules, point):
    every = rcp.load(rules, discover.rcp_folders())
    verdict = rcp.verdict(every, rules, point.batch_size, [point.mean] * rules.runs)
    assert verdict.verdict == rcp.PASS
    assert probability_of_failing(point.values, rules, verdict.bound) <= 0.001


def test_the_probability_is_that_of_a_binomial_distribution_where_a_point_has_two_values():
    rules = MINI.benchmark("resnet_mini")
    point = rcp.Point(batch_size=32, mean=10.9, deviation=0.4, count=10, values=(10,) * 2 + (11,) * 8)
    three_or_more_of_five = sum(math.comb(5, tens) * 0.2**tens * 0.8 ** (5 - tens) for tens in (3, 4, 5))
    assert probability_of_failing(point.values, rules, 10.4) == pytest.approx(three_or_more_of_five)


@pytest.mark.parametrize("name", ["training-1.1.0", "training-6.0.0", "hpc-3.0.0"])
def test_official_rounds_keep_the_test_of_the_official_checker(name):
    rounds = ruleset.load(name)
    for rules in map(rounds.benchmark, rounds.benchmarks):
        assert (rules.rcp_level, rules.rcp_pruned) == (0.05, True)


def test_a_mean_far_below_the_point_fails_in_a_round_of_our_own_too():
    rules = MINI.benchmark("resnet_mini")
    every = rcp.load(rules, discover.rcp_folders())
    assert rcp.verdict(every, rules, 64, [7.0] * rules.runs).verdict == rcp.FAIL


def test_a_round_of_our_own_compares_with_a_point_that_the_official_checker_prunes():
    rules = MINI.benchmark("resnet_mini")
    points = [
        rcp.Point(batch_size=size, mean=mean, deviation=1.0, count=10)
        for size, mean in ((32, 10.0), (64, 12.0), (128, 13.0))
    ]
    assert [point.batch_size for point in rcp.prune(points)] == [32, 128]
    assert "point at batch size 64" in rcp.verdict(points, rules, 64, [12.0] * rules.runs).message
