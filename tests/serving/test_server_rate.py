"""The rate of the Server scenario is one that all weights hold, and 5 % above one fails."""

import pytest

from train_bench.errors import LaunchError
from train_bench.serving.server_rate import STEP, bisect, settle


@pytest.mark.parametrize("limit", [50.0, 300.0, 777.0, 1100.0])
def test_bisection_finds_the_highest_rate_to_a_32nd(limit):
    probed = []

    def holds(rate):
        probed.append(rate)
        return rate <= limit

    found = bisect(1000.0, holds)
    assert limit - 1200 / 32 <= found <= limit
    assert len(probed) == 5


def test_a_system_that_holds_no_probed_rate_is_told():
    with pytest.raises(LaunchError, match="No probed rate down to"):
        bisect(1000.0, lambda rate: False)


@pytest.mark.parametrize("limit", [55.0, 70.0, 96.0, 100.0, 104.0, 106.0, 120.0])
def test_a_rate_settles_where_all_hold_and_five_per_cent_above_fails(limit):
    tried = []

    def all_hold(rate):
        tried.append(rate)
        return rate <= limit

    rate, fails = settle(100.0, all_hold)
    assert fails
    assert rate <= limit < rate * STEP
    assert len(tried) == len({*tried}), "no rate is tried twice"
    assert any(one == pytest.approx(rate * STEP) for one in tried)


def test_a_rate_that_never_fails_is_told():
    rate, fails = settle(100.0, lambda rate: True)
    assert rate == pytest.approx(100 * STEP**11)
    assert not fails


def test_weights_that_hold_no_rate_nearby_are_refused():
    tried = []
    with pytest.raises(LaunchError, match="do not hold the latency bound") as refused:
        settle(100.0, tried.append)
    assert f"at {tried[-1]:.3g} samples/s" in str(refused.value)
