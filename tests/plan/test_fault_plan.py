"""When faults strike: at every interval, or after exponentially distributed times that follow from a seed."""

from itertools import islice
from statistics import fmean

import pytest

from train_bench.plan.fault_plan import read


def test_faults_of_an_interval_strike_at_its_multiples():
    assert list(islice(read("kill rank 3 every 2.5 s").times(0), 3)) == [2.5, 5.0, 7.5]


def test_times_of_a_mean_follow_from_the_seed_and_differ_between_runs():
    plan = read("kill host every 60 s on average seed 7")
    first, again, other = (list(islice(plan.times(run), 2000)) for run in (0, 0, 1))
    assert first == again != other
    gaps = [after - before for before, after in zip([0.0, *first], first, strict=False)]
    assert fmean(gaps) == pytest.approx(60, rel=0.08)
    assert sum(gap > 60 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.04)


@pytest.mark.parametrize(
    ("text", "what", "rank"),
    [
        ("kill every 1 s", "rank", 0),
        ("kill rank 2 every 1 s", "rank", 2),
        ("kill host every 1 s", "host", 0),
        ("  kill launcher every 1 s on average seed 1 ", "launcher", 0),
    ],
)
def test_what_is_killed_is_named(text, what, rank):
    plan = read(text)
    assert (plan.what, plan.rank) == (what, rank)
