"""Minutes of a score from samples to the target and pace."""

import math
from dataclasses import replace

import numpy as np
import pytest

from train_bench.errors import RequestError
from train_bench.forecast import samples, simulate
from train_bench.forecast.simulate import Pace
from train_bench.judge import rcp
from train_bench.judge.statistics import olympic_mean
from train_bench.rules import ruleset

MASKRCNN = ruleset.load("training-3.1.0").benchmark("maskrcnn")  # an evaluation every epoch
RESNET = ruleset.load("training-1.1.0").benchmark("resnet")  # every four


def point(*values: float) -> rcp.Point:
    return rcp.Point(batch_size=64, mean=0.0, deviation=0.0, count=len(values), values=values)


def expected(rules, *values):
    return replace(samples.expect([point(*values)], rules, 64), log_error=0.0)


def pace(opening=30.0, unit=60.0, evaluation=10.0, between_runs=0.0, error=0.0):
    factor = np.exp(error * np.random.default_rng(1).standard_normal(4000))
    return Pace(
        opening=np.full(4000, opening),
        unit=unit * factor,
        evaluation=np.full(4000, evaluation),
        between_runs=between_runs,
        source="stated",
        message="",
    )


def test_minutes_are_opening_units_and_evaluations() -> None:
    forecast = simulate.simulate(expected(MASKRCNN, 10, 10), pace(), runs=5, drop=1)

    assert forecast.run.median == pytest.approx((30 + 10 * 60 + 10 * 10) / 60)
    assert forecast.score.median == forecast.run.median
    assert forecast.evaluations == 10
    assert forecast.shares == pytest.approx(
        {"opening": 30 / 730, "training": 600 / 730, "evaluation": 100 / 730}
    )
    assert forecast.unfinished == 0


def test_the_score_is_that_of_campaigns_simulated_one_after_the_other() -> None:
    of_reference = expected(RESNET, 33, 34, 36, 37, 38, 41, 44, 45)
    forecast = simulate.simulate(of_reference, pace(opening=0, evaluation=0), runs=5, drop=1)

    rng, scores = np.random.default_rng(4), []
    for _ in range(4000):
        places = rng.choice([33, 34, 36, 37, 38, 41, 44, 45], 5) - rng.random(5)  # evaluated every epoch
        stops = [4 * math.ceil(place / 4) for place in places]
        scores.append(olympic_mean(stops, 1))
    assert forecast.score.median == pytest.approx(np.median(scores), abs=0.4)
    for level in simulate.LEVELS:
        low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
        assert forecast.score.within[level] == pytest.approx((low, high), abs=0.7)


def test_runs_are_not_rounded_up_after_they_were_averaged() -> None:
    """Of runs that end at 36 and 40 with equal chance the mean is 38, which is no evaluation."""
    forecast = simulate.simulate(expected(RESNET, 36, 40), pace(opening=0, evaluation=0), runs=50, drop=1)

    assert forecast.score.median == pytest.approx(38, abs=0.3)


def test_the_error_of_the_pace_is_that_of_a_whole_campaign_and_that_of_runs_averages_out() -> None:
    sure = expected(MASKRCNN, 10, 10)
    machine = pace(opening=0, evaluation=0, error=0.1)

    of_machine = simulate.simulate(sure, machine, runs=20, drop=0)
    of_runs = simulate.simulate(sure, pace(opening=0, evaluation=0, between_runs=0.1), runs=20, drop=0)

    assert of_machine.between["pace"] == pytest.approx(0.1, rel=0.1)
    assert width(of_machine) == pytest.approx(2 * 1.2816 * 0.1, rel=0.1)
    assert width(of_runs) == pytest.approx(2 * 1.2816 * 0.1 / math.sqrt(20), rel=0.1)


def width(forecast):
    low, high = forecast.score.within[0.8]
    return math.log(high / low)


def test_the_same_question_has_the_same_answer() -> None:
    of_reference = expected(RESNET, 33, 36, 40, 41)

    assert simulate.simulate(of_reference, pace(), runs=5, drop=1) == simulate.simulate(
        of_reference, pace(), runs=5, drop=1
    )


def test_runs_that_the_schedule_ends_first_are_counted_and_end_there() -> None:
    short = expected(MASKRCNN, 10, 10, 10, 30)
    forecast = simulate.simulate(
        replace(short, schedule=replace(short.schedule, until=20)),
        pace(opening=0, evaluation=0),
        runs=5,
        drop=1,
    )

    assert forecast.unfinished == pytest.approx(0.25, abs=0.02)
    assert forecast.position.within[0.95][1] == 20


def test_where_no_run_could_reach_the_target_there_is_nothing_to_forecast() -> None:
    short = expected(MASKRCNN, 10, 12)

    with pytest.raises(RequestError, match="No run would reach the target before the schedule ends at 5"):
        simulate.simulate(replace(short, schedule=replace(short.schedule, until=5)), pace(), runs=5, drop=1)


def test_too_few_runs_to_drop_any_are_averaged_all() -> None:
    values = np.array([[1.0, 2.0], [3.0, 5.0]])

    assert simulate.olympic(values, 1).tolist() == [1.5, 4.0]
    assert simulate.olympic(np.array([[1.0, 2.0, 9.0]]), 1).tolist() == [2.0]
