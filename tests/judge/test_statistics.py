"""The arithmetic against scipy."""

import math
import random
import statistics

import numpy
import pytest
import scipy.stats

from train_bench.judge.rcp import RcpVerdict
from train_bench.judge.score import _interval
from train_bench.judge.statistics import (
    largest_acceptable_mean,
    olympic_interval,
    olympic_mean,
    runs_for_half_width,
    smallest_acceptable_mean,
)


def test_the_olympic_mean_drops_both_ends():
    assert olympic_mean([5, 1, 2, 3, 100], 1) == pytest.approx(10 / 3)
    assert olympic_mean(range(40), 4) == pytest.approx(19.5)


@pytest.mark.parametrize("half_width", [0.2, 0.5, 1.0, 3.0])
def test_so_many_runs_are_needed_for_a_half_width_and_no_fewer(half_width):
    values = [9.0, 10.0, 11.5, 10.5, 8.0]
    deviation = statistics.stdev(values)

    def half(runs):
        return scipy.stats.t.ppf(0.975, runs - 1) * deviation / math.sqrt(runs)

    needed = runs_for_half_width(values, half_width)
    assert half(needed) <= half_width < half(needed - 1)


def test_runs_that_do_not_differ_need_no_more_than_two_and_wild_ones_more_than_anybody_does():
    assert runs_for_half_width([10.0, 10.0, 10.0], 0.1) == 2
    assert runs_for_half_width([1.0, 100.0], 0.1) is None


def test_one_failed_run_is_the_slowest_that_is_dropped():
    assert olympic_mean([math.inf, 1, 2, 3, 4], 1) == 3


def test_more_failed_runs_than_are_dropped_leave_no_mean():
    assert olympic_mean([math.inf, math.inf, 1, 2, 3], 1) == math.inf


def test_nothing_is_left_of_two_runs():
    with pytest.raises(ValueError):
        olympic_mean([1, 2], 1)


def samples():
    rng = random.Random(4)
    for count in (2, 3, 5, 10, 40):
        yield [rng.gauss(30, 2) for _ in range(count)]


@pytest.mark.parametrize("values", list(samples()), ids=len)
def test_the_interval_is_as_wide_as_students_t_and_lies_around_what_is_printed(values):
    drop = 1 if len(values) > 2 else 0
    logarithms = [math.log(value) for value in values]
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, scale=scipy.stats.sem(logarithms))
    center = olympic_mean(values, drop)
    expected = (center * math.exp(low), center * math.exp(high))
    assert olympic_interval(values, drop) == pytest.approx(expected, rel=1e-9)


def normal(rng):
    return rng.gauss(10, 1)


def log_normal(rng):
    return rng.lognormvariate(0, 0.3)


def very_skewed(rng):
    return rng.lognormvariate(0, 0.5)


def disturbed(rng):
    return rng.lognormvariate(0, 1)


@pytest.mark.parametrize(
    ("times", "failed", "coverage"),
    [
        (normal, 0, 0.944),
        (log_normal, 0, 0.943),
        (very_skewed, 0, 0.945),
        (disturbed, 0, 0.933),
        (normal, 1, 0.944),
        (log_normal, 1, 0.935),
        (very_skewed, 1, 0.926),
    ],
)
def test_the_interval_of_the_olympic_mean_of_five_runs_covers_it_as_often_as_is_said(times, failed, coverage):
    """What is covered is the mean that olympic means of such runs have."""
    rng = random.Random(5)
    sets = [[times(rng) for _ in range(5 - failed)] + [math.inf] * failed for _ in range(4000)]
    truth = statistics.fmean(olympic_mean(values, 1) for values in sets)
    intervals = [olympic_interval(values, 1) for values in sets]
    covered = statistics.fmean(low <= truth <= high for low, high in intervals)
    assert covered == pytest.approx(coverage, abs=0.011)  # three standard errors of 4,000 sets


def test_the_interval_of_runs_of_very_different_length_stays_above_zero():
    low, high = olympic_interval([0.2, 0.2, 0.25, 2.4, 5.9], 1)
    assert 0.1 < low < high


@pytest.mark.parametrize("n_reference", [8, 15, 18, 72])
@pytest.mark.parametrize("n_submission", [1, 3, 8, 38])
@pytest.mark.parametrize(("mean", "deviation"), [(35.0, 0.9), (2.5e6, 4e4), (1.2, 0.05)])
@pytest.mark.parametrize(
    ("bound_of", "side"), [(smallest_acceptable_mean, "less"), (largest_acceptable_mean, "greater")]
)
def test_a_bound_is_where_the_one_sided_test_is_five_percent(
    bound_of, side, n_reference, n_submission, mean, deviation
):
    bound = bound_of(mean, deviation, n_reference, n_submission)
    tested = scipy.stats.ttest_ind_from_stats(
        bound, deviation, n_reference, mean, deviation, n_submission, equal_var=True, alternative=side
    )
    assert tested.pvalue == pytest.approx(0.05, rel=1e-9)


def test_without_deviation_both_bounds_are_the_mean():
    assert smallest_acceptable_mean(35.0, 0.0, 8, 3) == largest_acceptable_mean(35.0, 0.0, 8, 3) == 35.0


def interval_of(times, convergences, **changes):
    mean = olympic_mean([math.inf if value is None else value for value in convergences], 1)
    values = {
        "verdict": "pass",
        "message": "",
        "factor": max(1.0, 20 / mean),
        "mean": 20.0,
        "submission_mean": mean,
    }
    return _interval(times, 1, RcpVerdict(**values | changes), convergences, applied=True)


@pytest.mark.parametrize("ratio", [0.85, 0.95, 1.0, 1.1])
def test_the_interval_of_a_score_covers_it_whatever_the_rcp_factor_does(ratio):
    """A run of fewer epochs is as much shorter as its factor is larger: taken as exact, a factor makes the interval
    cover 98 to 100 %."""
    generator = numpy.random.default_rng(5)

    def runs(draws):
        epochs = numpy.ceil(ratio * 20 * numpy.exp(generator.normal(0, 0.15, (draws, 5))) - 0.5)
        return epochs, epochs * numpy.exp(generator.normal(0, 0.02, (draws, 5)))

    means = [numpy.sort(values, axis=1)[:, 1:-1].mean() for values in runs(20_000)]
    truth = means[1] * max(1, 20 / means[0])
    covered = []
    for epochs, times in zip(*runs(1500), strict=True):
        low, high = interval_of(list(times), list(epochs))
        covered.append(low <= truth <= high)
    assert 0.93 <= statistics.fmean(covered) <= 0.975


def test_the_interval_is_that_of_the_olympic_mean_where_no_factor_applies():
    times, epochs = [1.0, 1.1, 1.2, 1.3, 1.4], [20.0, 22.0, 24.0, 26.0, 28.0]
    plain = olympic_interval(times, 1)
    rcp = RcpVerdict(verdict="pass", message="", factor=1.2, mean=30.0, submission_mean=24.0)
    assert _interval(times, 1, rcp, epochs, applied=False) == plain
    for changes in ({"verdict": "fail"}, {"mean": None}, {"submission_mean": None}):
        assert interval_of(times, epochs, **changes) == plain
    assert interval_of(times, [*epochs[:4], None], mean=30.0, submission_mean=24.0) == plain
    assert (
        interval_of([*times[:4], math.inf], [*epochs[:4], None], mean=30.0, submission_mean=24.0)[0]
        > plain[0]
    )
