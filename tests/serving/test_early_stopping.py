"""Early stopping is the binomial test of LoadGen."""

from fractions import Fraction
from itertools import pairwise
from math import comb

import pytest

from train_bench.serving.early_stopping import estimate_position, fewest_queries, holds, largest_slow

PERCENTILES = {0.9: Fraction(9, 10), 0.97: Fraction(97, 100), 0.99: Fraction(99, 100)}


def probability(queries, slow, percentile):
    """Exact probability of at most `slow` slow queries."""
    slow_share = 1 - percentile
    return sum(
        comb(queries, count) * slow_share**count * percentile ** (queries - count)
        for count in range(slow + 1)
    )


@pytest.mark.parametrize("percentile", PERCENTILES)
@pytest.mark.parametrize("queries", [1, 43, 44, 63, 64, 100, 299, 458, 459, 661, 662, 900])
def test_a_percentile_holds_where_the_exact_binomial_probability_is_below_a_hundredth(queries, percentile):
    for slow in range(9):
        exact = probability(queries, slow, PERCENTILES[percentile])
        assert holds(queries, slow, percentile) == (exact < Fraction(1, 100)), slow


@pytest.mark.parametrize(
    ("slow", "percentile", "queries"),
    [(0, 0.9, 44), (1, 0.9, 64), (0, 0.99, 459), (1, 0.99, 662), (1, 0.999, 6636)],
)
def test_the_fewest_queries_are_those_of_loadgen(slow, percentile, queries):
    assert fewest_queries(slow, percentile) == queries


@pytest.mark.parametrize(("percentile", "queries"), [(0.9, 63), (0.99, 661), (0.999, 6635)])
def test_fewer_queries_give_no_estimate(percentile, queries):
    assert estimate_position(queries, percentile) is None
    assert estimate_position(queries + 1, percentile) == queries


@pytest.mark.parametrize(
    ("percentile", "queries", "discarded"), [(0.9, 108_454, 10_614), (0.99, 80_001, 733), (0.9, 20_001, 1900)]
)
def test_as_many_queries_are_discarded_as_loadgen_has_logged(percentile, queries, discarded):
    assert largest_slow(queries, percentile) == discarded + 1


def test_more_queries_never_allow_fewer_slow_ones():
    allowed = [largest_slow(queries, 0.99) for queries in range(400, 3000, 13)]
    assert allowed[0] == -1
    assert all(later >= earlier for earlier, later in pairwise(allowed))
