"""Whether two implementations converge alike."""

import math

import numpy
import pytest

from train_bench.compare.equal_convergence import MARGIN, two_one_sided

DRAWS = 2000


def verdicts(ratio, *, runs, deviation):
    generator = numpy.random.default_rng(runs)
    a = generator.normal(0.0, deviation, size=(DRAWS, runs)).tolist()
    b = generator.normal(math.log(ratio), deviation, size=(DRAWS, runs)).tolist()
    return [two_one_sided(one, other, paired=False) for one, other in zip(a, b, strict=True)]


def share(found, verdict):
    return sum(one.verdict == verdict for one in found) / len(found)


@pytest.mark.full
@pytest.mark.parametrize("ratio", [1 + MARGIN, 1 / (1 + MARGIN)])
@pytest.mark.parametrize("runs", [5, 20])
def test_what_is_off_by_the_margin_is_seldom_called_equal_and_as_seldom_different(ratio, runs):
    found = verdicts(ratio, runs=runs, deviation=0.03)
    assert share(found, "equal") <= 0.065
    assert share(found, "different") <= 0.065


@pytest.mark.full
def test_what_is_equal_is_called_so_with_enough_runs_and_cannot_be_told_with_few():
    assert share(verdicts(1.0, runs=20, deviation=0.03), "equal") > 0.95
    few = verdicts(1.0, runs=3, deviation=0.1)
    assert share(few, "cannot tell") > 0.9
    assert share(few, "different") < 0.05


@pytest.mark.parametrize("ratio", [1.2, 1 / 1.2])
def test_a_slower_one_is_as_different_as_a_faster_one(ratio):
    assert share(verdicts(ratio, runs=10, deviation=0.05), "different") > 0.95


def test_how_many_more_runs_would_tell_is_about_what_it_then_takes():
    few = [-0.1, 0.0, 0.1]
    found = two_one_sided(few, few, paired=False)
    assert found.verdict == "cannot tell"
    times = math.ceil((len(few) + found.more_runs) / len(few))
    assert two_one_sided(few * (times + 1), few * (times + 1), paired=False).verdict == "equal"
    assert two_one_sided(few * (times // 2), few * (times // 2), paired=False).verdict == "cannot tell"


def test_runs_that_all_stop_at_the_same_evaluation_do_not_show_that_they_are_equal():
    found = two_one_sided([1.0, 1.0], [1.0, 1.0], paired=False)
    assert (found.verdict, found.more_runs) == ("cannot tell", None)
    assert two_one_sided([1.0] * 3, [1.1] * 3, paired=False).verdict == "cannot tell"
    period = [0.03**2 / 12] * 2
    assert two_one_sided([1.0] * 3, [1.1] * 3, paired=False, floors=period).verdict == "different"
    assert two_one_sided([1.0] * 3, [1.06] * 3, paired=False, floors=period).verdict == "cannot tell"


def test_seeds_that_take_the_same_samples_each_are_equal():
    assert two_one_sided([1.0, 1.2, 1.1], [1.0, 1.2, 1.1], paired=True).verdict == "equal"
