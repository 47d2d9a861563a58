"""What points say of a batch size, and draws from it."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from train_bench.errors import RequestError
from train_bench.forecast import law, samples
from train_bench.judge import rcp
from train_bench.progress import EvalSchedule
from train_bench.rules import ruleset

MASKRCNN = ruleset.load("training-3.1.0").benchmark("maskrcnn")  # an evaluation every epoch
RESNET = ruleset.load("training-1.1.0").benchmark("resnet")  # every four
DLRM = ruleset.load("training-1.1.0").benchmark("dlrm")  # counts from 1
GPT3 = ruleset.load("training-4.1.0").benchmark("gpt3")  # the rules give no schedule


def point(batch_size: int, *values: float) -> rcp.Point:
    mean = sum(values) / len(values)
    return rcp.Point(batch_size=batch_size, mean=mean, deviation=0.0, count=len(values), values=values)


def test_at_a_point_runs_end_at_the_evaluations_that_its_runs_ended_at() -> None:
    expected = samples.expect([point(64, 11, 12, 12, 14)], MASKRCNN, 64)

    drawn = replace(expected, log_error=0.0).draw(np.random.default_rng(1), 4_000, 5)

    shares = Counter(drawn.ravel().tolist())
    assert expected.source == samples.POINT
    assert not expected.extrapolated
    assert drawn.shape == (4_000, 5)
    assert set(shares) == {11, 12, 14}
    assert shares[12] / drawn.size == pytest.approx(0.5, abs=0.02)


def test_a_point_that_was_evaluated_more_often_than_the_rules_ask_is_taken_to_the_rules_evaluations() -> None:
    expected = samples.expect([point(64, 34, 35, 36, 37)], RESNET, 64)

    drawn = replace(expected, log_error=0.0).draw(np.random.default_rng(1), 4_000, 5)

    assert (expected.schedule.first, expected.schedule.period) == (4, 4)
    assert set(drawn.ravel().tolist()) == {36, 40}
    assert (drawn == 40).mean() == pytest.approx(0.25, abs=0.02)


def test_draws_agree_with_a_simulation_of_one_run_after_the_other() -> None:
    expected = samples.expect(rcp.official(DLRM), DLRM, 32_768)
    schedule, rng = expected.schedule, np.random.default_rng(3)

    slow = []
    for _ in range(3_000):
        factor = math.exp(expected.log_error * rng.standard_normal())
        place = rng.choice(expected.values) + rng.uniform(-0.5, 0.5) * expected.resolution
        needed = 1 + (place - 1) * factor
        evaluation = schedule.first
        while evaluation < needed - 1e-9:
            evaluation += schedule.period
        slow.append(evaluation)

    drawn = expected.draw(np.random.default_rng(4), 3_000, 1)
    assert drawn.mean() == pytest.approx(np.mean(slow), abs=0.004)
    assert drawn.std() == pytest.approx(np.std(slow), abs=0.004)
    assert np.allclose((drawn - 1.05) / 0.05, np.round((drawn - 1.05) / 0.05))


def test_runs_of_a_simulation_share_the_error_of_the_mean() -> None:
    expected = replace(samples.expect([point(64, *[1000] * 20)], MASKRCNN, 64), log_error=0.1)

    means = expected.draw(np.random.default_rng(1), 2_000, 100).mean(axis=1)

    assert np.log(means).std() == pytest.approx(0.1, rel=0.06)


def test_between_two_points_the_mean_is_interpolated_and_so_is_the_spread() -> None:
    low, high = point(64, 10, 11, 12, 13), point(128, 20, 24, 28, 32)

    expected = samples.expect([low, high], MASKRCNN, 80)

    assert expected.source == samples.BETWEEN
    assert expected.sizes == (64, 128)
    assert expected.mean() == pytest.approx(0.75 * 11.5 + 0.25 * 26 - 0.5)
    assert np.ptp(expected.values) == pytest.approx(0.75 * 3 + 0.25 * 12)


def test_points_of_different_numbers_of_runs_can_be_interpolated() -> None:
    expected = samples.expect([point(64, 10, 12), point(128, *range(20, 40))], MASKRCNN, 96)

    assert expected.mean() == pytest.approx((11 + 29.5) / 2 - 0.5)


def test_above_the_largest_point_the_law_is_used_and_named_extrapolated() -> None:
    points = [point(size, *(10 * (1 + size / 128) + np.array([-1, 0, 1]))) for size in (64, 128, 256)]

    expected = samples.expect(points, MASKRCNN, 512)

    assert expected.source == samples.LAW
    assert expected.extrapolated
    assert "extrapolated: batch size 512 is above the largest point, 256" in expected.message
    assert expected.mean() == pytest.approx(50 - 0.5, rel=1e-3)
    assert expected.values.std() / expected.mean() == pytest.approx(points[-1].values[2] / 30 - 1, rel=0.25)
    assert expected.log_error >= law.TYPICAL_ERROR / 2


def test_below_the_smallest_point_its_runs_stand_in_and_that_is_said() -> None:
    at, below = (samples.expect([point(64, 10, 11, 12)], MASKRCNN, size) for size in (64, 32))

    assert below.source == samples.BELOW
    assert below.extrapolated
    assert "below the smallest point, 64" in below.message
    assert below.values.tolist() == at.values.tolist()
    assert below.log_error > at.log_error


def test_a_point_of_few_or_scattered_runs_is_less_sure() -> None:
    sure, few, scattered = (
        samples.expect([point(64, *values)], MASKRCNN, 64).log_error
        for values in ([10, 11] * 20, [10, 11], [5, 6, 15, 16] * 10)
    )

    assert sure < few
    assert sure < scattered


def test_without_a_schedule_in_the_rules_quality_is_evaluated_as_often_as_for_the_points() -> None:
    expected = samples.expect(rcp.official(GPT3), GPT3, 1536)

    assert expected.schedule.period == 50_331_648


def test_a_value_with_a_digit_too_many_and_a_failed_run_are_left_out() -> None:
    misprinted = samples.expect(rcp.official(GPT3), GPT3, 3072)
    failed = samples.expect([point(64, 10, 11, rcp.FAILED)], MASKRCNN, 64)

    assert misprinted.values.max() < 1.3e9
    assert "without 1 misprinted or failed" in misprinted.message
    assert failed.values.max() < 11


def test_a_run_that_needs_more_than_the_schedule_has_never_ends() -> None:
    schedule = EvalSchedule(first=1, period=1, until=3)

    assert samples.next_evaluation(schedule, np.array([0.2, 3.0, 3.1])).tolist() == [1, 3, math.inf]


@pytest.mark.parametrize(
    ("points", "batch_size", "sentence"),
    [
        ([], 64, "has no reference convergence points"),
        ([point(64, 10, 11)], 65, "above the only reference convergence point of maskrcnn, 64"),
        ([point(64, 10, 11)], 0, "The batch size is 0; give a whole number of at least 1."),
    ],
)
def test_what_cannot_be_said_is_refused_in_a_sentence(
    points: list[rcp.Point], batch_size: int, sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        samples.expect(points, MASKRCNN, batch_size)
