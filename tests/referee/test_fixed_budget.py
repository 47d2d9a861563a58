"""Quality at a fixed budget: false records, power, failed runs, sessions, and the direction of the metric."""

import math
from types import SimpleNamespace

import numpy
import pytest
from scipy import stats

from tests.compare.test_quality_gate import entry
from train_bench.compare.alpha_spending import increments
from train_bench.compare.gate import CANNOT_TELL
from train_bench.compare.quality_gate import BETTER, NOT_BETTER
from train_bench.referee import fixed_budget
from train_bench.referee.challenge import objections

LEVEL, PAIRS = 0.05, 8


def share_better(effect, gain, trials=400):
    draws = numpy.random.default_rng(1).normal(effect, 0.01, (trials, PAIRS))
    return sum(fixed_budget.decide(list(one), gain, PAIRS, LEVEL)[0] == BETTER for one in draws) / trials


@pytest.mark.parametrize("gain", [0.0, 0.02])
def test_a_challenger_at_the_gain_and_no_more_makes_false_records_at_the_level_alone(gain):
    assert share_better(gain, gain) <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 400)


@pytest.mark.parametrize("gain", [0.0, 0.02])
def test_a_challenger_beyond_the_gain_makes_records(gain):
    assert share_better(gain + 0.03, gain) > 0.95


def test_a_bound_is_that_of_students_test_of_the_pairs_at_the_level_of_the_look():
    differences = [0.03, 0.01, 0.05, 0.02, 0.04]
    _, looks, _ = fixed_budget.decide(differences, 10.0, 5, LEVEL)
    (first, *_) = looks
    assert first.runs == 3
    level = increments(LEVEL, 5)[0]
    due = stats.ttest_1samp(differences[:3], 0.0, alternative="greater").confidence_interval(1 - level).low
    assert first.low == pytest.approx(due)


def contest(budget=2.0, gain=0.0, pairs=5, sessions=1):
    return SimpleNamespace(budget=budget, gain=gain, pairs=pairs, sessions=sessions)


def gained(a, b, **changes):
    return fixed_budget.quality_gain(contest(**changes), entry(a), entry(b), LEVEL)


LOW = [[0.1, 0.50], [0.1, 0.51], [0.1, 0.52], [0.1, 0.50], [0.1, 0.51]]
HIGH = [[0.1, 0.60], [0.1, 0.62], [0.1, 0.61], [0.1, 0.60], [0.1, 0.62]]


def test_qualities_are_those_at_the_budget():
    later = [[*curve, 1.1 - curve[1]] for curve in (*LOW, *HIGH)]
    found = gained(later[:5], later[5:])
    assert (found.verdict, found.unit, found.metric) == (BETTER, "epoch", "top1")
    assert found.sides[0][: len(found.pairs)] == [curve[1] for curve in LOW[: len(found.pairs)]]
    assert gained(later[:5], later[5:], budget=3.0).verdict == NOT_BETTER
    assert gained(later[:5], later[5:], gain=0.2).verdict == NOT_BETTER


def test_differences_that_are_equal_but_for_rounding_decide_nothing():
    low, even = ([[0.1, (one + at) / 10] for one in (1, 2, 3, 4, 5)] for at in (0, 1))
    assert len({other[1] - one[1] for one, other in zip(low, even, strict=True)}) > 1
    found = gained(low, even)
    assert (found.verdict, found.looks, len(found.pairs)) == (CANNOT_TELL, (), 5)


def test_a_lower_metric_is_better_where_the_benchmark_says_so(monkeypatch):
    lower = SimpleNamespace(metric="loss", higher_is_better=False)
    monkeypatch.setattr(fixed_budget, "only_threshold", lambda judged: lower)
    assert (gained(HIGH, LOW).verdict, gained(LOW, HIGH).verdict) == (BETTER, NOT_BETTER)


@pytest.mark.parametrize("lost", [[], [0.1], [0.1, math.nan]], ids=["died", "cut off", "diverged"])
def test_a_run_without_a_quality_is_the_worst_of_all(lost):
    found = gained(LOW, [*HIGH[:2], lost, *HIGH[3:]])
    assert (found.verdict, found.without) == (CANNOT_TELL, (0, 1))
    assert found.ranks > LEVEL and found.looks[-1].low > 0, "the others alone would make a record"
    assert gained([*LOW[:2], lost, *LOW[3:]], LOW).verdict != NOT_BETTER, "the frontier fails"


def test_runs_that_break_a_rule_or_copy_another_have_no_quality():
    challenger = entry(HIGH)
    challenger.score.runs[1].compliant = False
    challenger.score.runs[2].sha256 = challenger.score.runs[3].sha256 = "same"
    found = fixed_budget.at_budget(challenger, 2.0, "top1")
    assert found[1] is None and 3 not in found and found[2] == 0.61


def test_a_session_is_one_observation_and_fails_by_a_run_of_the_challenger():
    twelve = [curve for curve in LOW for _ in range(3)][:12]
    better = [curve for curve in HIGH for _ in range(3)][:12]
    found = gained(twelve, better, pairs=12, sessions=4)
    assert [look.runs for look in found.looks] == [3, 4][: len(found.looks)]
    assert found.looks[0].value == pytest.approx((0.10 + 0.11 + 0.09) / 3)
    failed = gained(twelve, [*better[:4], [], *better[5:]], pairs=12, sessions=4)
    assert len(failed.looks) == 1 and failed.looks[0].runs == 4
    assert gained(twelve[:8], better[:8], pairs=12, sessions=4).looks == (), "sessions that are not complete"


def test_a_run_that_ended_at_its_target_before_the_budget_speaks_against_a_record():
    sides = [entry(LOW), entry([*HIGH[:4], [0.99]])]
    for side in sides:
        side.score.reasons = (
            "5 run(s) did not converge (index 0); at most 1 may fail.",
            "The clock is wrong.",
        )
    sides[1].score.runs[4].status = "success"
    early, *others = objections(*sides, 2.0)
    assert early.startswith(
        "1 of the runs of the challenger reached the target of the benchmark before the budget"
    )
    assert len(others) == 2 and all("The clock is wrong" in one for one in others)
    assert len(objections(*sides)) == 4
