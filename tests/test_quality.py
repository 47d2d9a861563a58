"""Targets: what reaches one decides when the clock stops."""

import math

import pytest

from train_bench.quality import Quality, Target, Threshold


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("strictly", [True, False])
def test_a_value_at_the_threshold_reaches_it_unless_it_has_to_be_passed(higher, strictly):
    threshold = Threshold(metric="m", value=0.5, higher_is_better=higher, strictly=strictly)
    better, worse = (0.5 + step * (1 if higher else -1) for step in (1e-9, -1e-9))
    reached = [threshold.reached(Quality(metrics={"m": value})) for value in (worse, 0.5, better)]
    assert reached == [False, not strictly, True]


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_reaches_nothing_and_ends_the_run(higher, value):
    threshold = Threshold(metric="m", value=0.5, higher_is_better=higher)
    quality = Quality(metrics={"m": value})
    assert not threshold.reached(quality) and quality.diverged


def test_a_value_beyond_the_best_reaches_nothing_and_rounding_is_allowed_for():
    for higher, best in ((True, 1.0), (False, 0.0)):
        threshold = Threshold(metric="m", value=0.5, higher_is_better=higher, best=best)
        sign = 1 if higher else -1
        near, beyond = (Quality(metrics={"m": best + sign * step}) for step in (0.00099, 0.00101))
        assert threshold.reached(near) and not threshold.reached(beyond)


def test_a_target_is_reached_by_all_its_metrics_in_one_evaluation():
    target = Target(thresholds=tuple(Threshold(metric=name, value=0.5) for name in "ab"))
    found = [
        target.reached(Quality(metrics={"a": a, "b": b})) for a, b in ((0.6, 0.6), (0.6, 0.4), (0.4, 0.6))
    ]
    assert found == [True, False, False]
    assert not target.reached(Quality(metrics={"a": 0.6}))
