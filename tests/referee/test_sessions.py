"""Sessions of a challenge: the mean of each is one observation, as in a model with a random effect of the session."""

import math
import statistics
from dataclasses import dataclass
from types import SimpleNamespace

import numpy
import pytest
from scipy import stats

from train_bench.compare import gate
from train_bench.compare.comparison import floors_of
from train_bench.judge.score import ScoredRun
from train_bench.referee import sessions
from train_bench.referee.challenge import moved_out
from train_bench.referee.contest import Outside


def run(index, minutes, **changes):
    fields = dict.fromkeys(ScoredRun.__dataclass_fields__) | {"index": index, "seed": 1000 + index}
    good = minutes is not None
    return ScoredRun(
        **fields
        | {"minutes": minutes, "converged": good, "compliant": good, "counted": True, "dropped": False}
        | changes
    )


@dataclass(frozen=True)
class Score:
    """What the gate reads of a score."""

    runs: tuple
    benchmark: str = "minis"
    target: str = "accuracy >= 0.9"
    division: str = "closed"


def score(minutes):
    return Score(tuple(run(index, one) for index, one in enumerate(minutes)))


def contest(pairs, count):
    return SimpleNamespace(pairs=pairs, sessions=count)


def drawn(count, each, between, rng, gain=0.05):
    """Minutes of both sides, with an effect of the session on the challenger."""
    effects = numpy.repeat(rng.normal(0, between, count), each)
    frontier = numpy.exp(rng.normal(0, 0.01, count * each))
    return frontier, numpy.exp(rng.normal(-gain, 0.01, count * each) + effects)


def test_the_bounds_are_those_of_a_random_effect_of_the_session():
    rng = numpy.random.default_rng(3)
    count, each, level = 5, 4, 0.01
    frontier, challenger = drawn(count, each, 0.02, rng)
    a, b = sessions.by_session(contest(count * each, count), score(frontier), score(challenger))
    found = gate.against_one("b", b, "a", a, 0.0, most_pairs=count, level=level).looks[-1]
    # analysis of variance of one random factor, by its sums of squares
    table = numpy.log(frontier / challenger).reshape(count, each)
    grand = sum(sum(row) for row in table) / table.size
    between = each * sum((sum(row) / each - grand) ** 2 for row in table) / (count - 1)
    error = math.sqrt(between / table.size)
    assert math.log(found.value) == pytest.approx(grand, rel=1e-9)
    due = grand - stats.t.ppf(1 - found.low_level, count - 1) * error
    assert math.log(found.low) == pytest.approx(due, rel=1e-9)


def test_what_sessions_do_to_one_side_makes_no_record_by_session_and_many_by_pair():
    rng = numpy.random.default_rng(1)
    count, each, level, trials = 4, 10, 0.05, 200
    false = numpy.zeros(2)
    for _ in range(trials):
        frontier, challenger = (score(one) for one in drawn(count, each, 0.03, rng, gain=0.0))
        a, b = sessions.by_session(contest(count * each, count), frontier, challenger)
        for place, (one, other, most) in enumerate(((a, b, count), (frontier, challenger, count * each))):
            found = gate.against_one("b", other, "a", one, 0.0, most_pairs=most, level=level)
            false[place] += found.verdict == gate.SLOWER
    by_session, by_pair = false / trials
    assert by_session <= 0.08 and by_pair > 0.2


def test_a_session_is_complete_or_not_there_and_fails_by_a_run_of_the_challenger():
    frontier = score([1.0, 2.0, None, 4.0, 1.0, 1.0, 1.0, 1.0])
    challenger = score([1.0, 1.0, 9.0, 3.0, 1.0, None, 1.0])
    a, b = sessions.by_session(contest(8, 4), frontier, challenger)
    assert [one.minutes for one in a.runs] == pytest.approx([math.sqrt(2), 4.0, 1.0])
    assert [one.minutes for one in b.runs][:2] == pytest.approx([1.0, 3.0]), (
        "without the pair of a failed frontier"
    )
    assert b.runs[2].minutes is None and not b.runs[2].converged


@pytest.mark.parametrize(("samples", "open_"), [((100, 90), True), ((100, 100), False)])
def test_the_variance_of_a_session_is_at_least_that_of_its_evaluation_periods(samples, open_):
    each, count = 4, 3
    sides = [
        Score(
            tuple(
                run(index, minutes, evaluation_minutes=0.1, samples=samples[side])
                for index in range(each * count)
            )
        )
        for side, minutes in enumerate((1.0, 0.8))
    ]
    a, b = sessions.by_session(contest(each * count, count), *sides)
    of_a_pair = (0.1**2 + (0.1 / 0.8) ** 2) / 12
    due = of_a_pair / each if open_ else 0.0
    assert floors_of(a.runs, b.runs, paired=True) == [pytest.approx(due)]


@pytest.mark.parametrize(
    ("longer", "asked"),
    [
        ((3.0, 3.1, 2.9), True),
        ((0.1, 0.11, 0.09), False),
        ((9.0, -8.0, 8.0), False),
        ((-3.0, -3.1, -2.9), False),
    ],
)
def test_work_that_moved_out_of_the_clock_is_asked_about(longer, asked):
    challenger = [Outside(seconds=10.0 + one, processor_seconds=None) for one in longer]
    frontier = [Outside(seconds=10.0, processor_seconds=None)] * 3
    found = moved_out(frontier, challenger, [1.0, 1.0, 1.0], [0.95, 0.95, 0.95])
    assert bool(found) is asked
    assert moved_out([None] * 3, challenger, [1.0] * 3, [0.95] * 3) == []
    assert not asked or f"{statistics.fmean(longer):.2f} s longer" in found[0]
