"""The error budget of a sequence of challengers, beside its formula as the paper states it."""

import math
from itertools import pairwise

import numpy
import pytest

from train_bench.compare.alpha_spending import increments, spent
from train_bench.referee.error_budget import gamma, level_of

ERROR = 0.01


def written_out(rejected, number, error, start):
    """Level of LORD++ by its definition, with tau_1, tau_2, ... one by one."""
    level = gamma(number) * start
    earlier = [one for one in rejected if one < number]
    if earlier:
        level += (error - start) * gamma(number - earlier[0])
    for one in earlier[1:]:
        level += error * gamma(number - one)
    return level


def test_the_shares_of_all_tests_add_up_to_less_than_one():
    shares = [gamma(number) for number in range(1, 20_000)]
    assert all(one >= other for one, other in pairwise(shares[1:]))
    root = math.sqrt(math.log(20_000))
    beyond = 0.079 * 2 * math.exp(-root) * (root**3 + 3 * root**2 + 6 * root + 6)
    assert 0.99 < sum(shares) + beyond < 1


@pytest.mark.parametrize("rejected", [[], [1], [3, 4], [2, 9, 10, 40]])
def test_levels_are_those_of_the_definition(rejected):
    for number in (1, 2, 5, 11, 60):
        due = written_out(rejected, number, ERROR, ERROR / 2)
        assert level_of(rejected, number, ERROR) == pytest.approx(due, rel=1e-12)


def test_without_any_record_all_levels_together_are_below_half_of_the_error():
    assert sum(level_of([], number, ERROR) for number in range(1, 5000)) < ERROR / 2


def test_a_record_earns_error_and_a_challenge_that_makes_none_does_not():
    assert level_of([5], 6, ERROR) > level_of([], 6, ERROR) > level_of([], 7, ERROR)
    assert level_of([6], 6, ERROR) == level_of([], 6, ERROR), "the level is known before the test"


def test_the_marginal_false_discovery_rate_is_kept():
    rng = numpy.random.default_rng(1)
    false = records = 0
    for _ in range(60):
        real = rng.random(100) < 0.2
        p = numpy.where(real, rng.random(100) * 1e-6, rng.random(100))
        made = []
        for number in range(1, 101):
            if p[number - 1] < level_of(made, number, 0.1):
                made.append(number)
                false += not real[number - 1]
        records += len(made)
    assert records > 60 * 15
    assert false / (records + 60) < 0.1


@pytest.mark.parametrize(("level", "most"), [(0.05, 10), (1e-5, 20)])
def test_the_looks_of_a_challenge_spend_its_level_and_no_more(level, most):
    levels = increments(level, most)
    assert len(levels) == most - 2
    assert sum(levels) == pytest.approx(level)
    assert levels[0] == spent(level, 3 / most)
    assert min(levels) >= 0, "the first looks of a small level have nothing to spend"
