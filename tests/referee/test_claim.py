"""Tests of claims, held to scipy and to what boards published of themselves."""

import math
import statistics
from pathlib import Path

import pytest
import scipy.stats

from train_bench.referee.claim import Target, judge_record, runs_needed
from train_bench.referee.readers import Record, Run

# modded-nanogpt, record of 2026-07-17 and its baseline, as its statistics.md states them.
LOSSES = [
    3.2791,
    3.2773,
    3.2783,
    3.2775,
    3.2781,
    3.2775,
    3.2793,
    3.2772,
    3.2769,
    3.2775,
    3.2806,
    3.2779,
    3.2816,
]
TIMES = [
    79.536,
    79.740,
    79.814,
    79.658,
    79.593,
    79.629,
    80.231,
    79.653,
    79.641,
    79.532,
    79.539,
    79.682,
    79.656,
]
FORMER_LOSSES = [
    3.2817,
    3.2796,
    3.2778,
    3.2802,
    3.2775,
    3.2767,
    3.2758,
    3.2821,
    3.2780,
    3.2768,
    3.2769,
    3.2775,
    3.2766,
]
FORMER_TIMES = [
    80.610,
    80.710,
    80.678,
    80.720,
    80.747,
    80.693,
    80.659,
    80.694,
    80.763,
    80.795,
    80.818,
    80.840,
    80.745,
]
# nanochat, seven runs of record 4 (dev/LEADERBOARD.md).
CORE = [0.25373, 0.2584, 0.25489, 0.2568, 0.25732, 0.26765, 0.25119]
BELOW = Target(value=3.28, above=False)


def record(qualities, times=None, facts=({},), **options):
    times = times or [None] * len(qualities)
    runs = [
        Run(source=str(place), quality=quality, time=time, facts=facts[place % len(facts)])
        for place, (quality, time) in enumerate(zip(qualities, times, strict=True))
    ]
    return Record(path=Path("record"), runs=runs, quality="val_loss", time="time", **options)


def test_a_claim_has_the_p_value_that_the_board_published():
    claim = judge_record(record(LOSSES, TIMES), BELOW, "now", ("before", record(FORMER_LOSSES, FORMER_TIMES)))
    assert claim.p == pytest.approx(0.0006690604, rel=1e-6)
    assert claim.shown
    assert claim.gain.p * 2 == pytest.approx(4.9e-12, rel=0.02)
    assert (claim.gain.shorter, claim.gain.share) == (
        pytest.approx(1.043692, abs=1e-6),
        pytest.approx(0.01292841),
    )


def test_a_merged_record_is_not_shown_by_its_own_runs():
    claim = judge_record(record(CORE), Target(value=0.256525, above=True), "record 4")
    assert claim.p == pytest.approx(0.38, abs=0.005)
    assert (claim.reached, claim.runs, claim.shown) == (4, 7, False)
    assert claim.needed == pytest.approx(730, abs=5)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("shift", [-0.002, 0.0, 0.004])
def test_p_is_that_of_scipy(above, shift):
    qualities = [value + shift for value in LOSSES]
    claim = judge_record(record(qualities), Target(value=3.28, above=above), "one")
    side = "greater" if above else "less"
    assert claim.p == pytest.approx(scipy.stats.ttest_1samp(qualities, 3.28, alternative=side).pvalue)


def test_the_interval_of_a_gain_is_that_of_welch():
    claim = judge_record(record(LOSSES, TIMES), BELOW, "now", ("before", record(FORMER_LOSSES, FORMER_TIMES)))
    welch = scipy.stats.ttest_ind(FORMER_TIMES, TIMES, equal_var=False, alternative="greater")
    interval = scipy.stats.ttest_ind(FORMER_TIMES, TIMES, equal_var=False).confidence_interval(0.95)
    assert claim.gain.p == pytest.approx(welch.pvalue)
    assert (claim.gain.low, claim.gain.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("effect", [0.12, 0.5, 1.5, 6.0])
def test_runs_needed_are_the_least_with_the_power(effect):
    target = Target(value=0, above=True, level=0.01, power=0.8)
    needed = runs_needed(effect, target)

    def power(runs):
        bound = scipy.stats.t.ppf(0.99, runs - 1)
        return scipy.stats.nct.sf(bound, runs - 1, effect * math.sqrt(runs))

    assert power(needed) >= 0.8
    assert needed == 2 or power(needed - 1) < 0.8


def test_a_fixed_deviation_makes_a_normal_test_of_one_run_and_more():
    target = Target(value=3.28, above=False, deviation=0.0013)
    claim = judge_record(record([3.2767, 3.2765]), target, "one")
    assert claim.p == pytest.approx(scipy.stats.norm.sf((3.28 - 3.2766) / (0.0013 / math.sqrt(2))))
    assert judge_record(record([3.276]), target, "one").shown
    far = judge_record(record([3.2741] * 5), target, "one").p
    due = scipy.stats.norm.sf(0.0059 / (0.0013 / math.sqrt(5)))
    assert far == pytest.approx(due, rel=1e-6, abs=0), "small, and not 0"
    assert runs_needed(10.0, target) == 1


def test_a_run_that_diverged_is_not_left_out():
    claim = judge_record(record([*LOSSES, math.nan]), BELOW, "one")
    assert (claim.p, claim.shown, claim.runs, claim.reached) == (None, False, 14, 11)
    assert "1 of 14 runs ended without a finite quality" in claim.reason


@pytest.mark.parametrize(
    ("qualities", "reason"), [([3.27], "one run has no spread"), ([3.27, 3.27], "the same quality")]
)
def test_what_has_no_spread_is_not_tested(qualities, reason):
    claim = judge_record(record(qualities), BELOW, "one")
    assert not claim.shown
    assert reason in claim.reason


def test_a_margin_on_the_wrong_side_needs_no_number_of_runs():
    assert judge_record(record([3.29, 3.30, 3.28]), BELOW, "one").needed is None


def test_runs_of_different_programs_are_a_question():
    claim = judge_record(record(LOSSES, TIMES, facts=[{"program": "a"}, {"program": "b"}]), BELOW, "one")
    assert any("differ in program (a, b)" in question for question in claim.questions)
    assert claim.facts == {}


def test_a_time_that_two_runs_share_to_the_last_digit_is_a_question():
    copied = record([3.27, 3.27, 3.275], [79.536, 79.536, 80.1])
    assert any("copies" in question for question in judge_record(copied, BELOW, "one").questions)
    by_chance = record([3.27, 3.27, 3.275], [80.0, 80.0, 81.0])
    assert not judge_record(by_chance, BELOW, "one").questions


def test_a_gain_on_another_machine_is_a_question():
    former = record(FORMER_LOSSES, FORMER_TIMES, facts=[{"gpus": "8 x A100"}])
    claim = judge_record(
        record(LOSSES, TIMES, facts=[{"gpus": "8 x H100"}]), BELOW, "now", ("before", former)
    )
    assert any("gpus (8 x A100, now 8 x H100)" in question for question in claim.questions)


def test_a_time_of_nothing_is_a_question():
    assert any(
        "took no time" in one
        for one in judge_record(record([3.27, 3.26], [0.0, 1.0]), BELOW, "one").questions
    )


def test_false_claims_at_the_target_are_as_rare_as_the_level_says():
    import numpy as np

    drawn = np.random.default_rng(1).normal(3.28, 0.002, size=(2000, 7))
    shown = [judge_record(record(list(row)), BELOW, "one").shown for row in drawn]
    assert 0.004 <= statistics.fmean(shown) <= 0.018
