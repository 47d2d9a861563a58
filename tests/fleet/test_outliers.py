"""Simulated fleets: how often good nodes are blamed, and bad ones found."""

import numpy as np
import pytest

from train_bench.fleet.acceptance import TRIES
from train_bench.fleet.outliers import deviations, scale_of

FLEETS = 400
FLOOR = 0.04


def blamed(nodes, *, noise, repeats=3, factor=1.0, ill=0, seed=0):
    """Shares of simulated fleets in which a good node is blamed, and in which the `ill` ones, which take `factor` times
    as long, are found; those that take too long train again."""
    random = np.random.default_rng(seed)
    false, right = 0, 0
    for _ in range(FLEETS):
        times = np.exp(noise * random.standard_normal((nodes, repeats + TRIES)))
        times[:ill] *= factor
        done = np.full(nodes, repeats)
        for _ in range(TRIES):
            done += slow(times, done)
        found = slow(times, done)
        false += bool(found[ill:].any())
        right += bool(found[:ill].all())
    return false / FLEETS, right / FLEETS


def slow(times, done):
    """Which nodes take too long by as many of their times as are done."""
    told = {str(node): [*row[:count]] for node, (row, count) in enumerate(zip(times, done, strict=True))}
    scale = scale_of(told, floor=FLOOR)
    return np.array([min(row) > scale.centre * scale.bound for row in told.values()])


@pytest.mark.parametrize("nodes", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.04])
def test_a_good_fleet_with_the_noise_that_is_believed_is_good(nodes, noise):
    assert blamed(nodes, noise=noise)[0] <= 0.01


@pytest.mark.parametrize("nodes", [2, 3, 4, 8, 64])
def test_with_three_times_that_noise_a_good_fleet_is_good_too(nodes):
    assert blamed(nodes, noise=0.12)[0] <= 0.01


@pytest.mark.parametrize("nodes", [2, 3, 4, 8, 64])
def test_half_a_processor_is_found_and_nobody_else_is_blamed(nodes):
    false, right = blamed(nodes, noise=0.04, factor=2.0, ill=1)
    assert right >= 0.99
    assert false <= 0.02


@pytest.mark.parametrize("nodes", [4, 8, 64])
def test_a_fifth_more_is_found_on_quiet_machines(nodes):
    assert blamed(nodes, noise=0.01, factor=1.2, ill=1)[1] >= 0.99


def test_a_fleet_in_which_a_third_is_ill_still_has_its_measure():
    assert blamed(9, noise=0.02, factor=2.0, ill=3)[1] >= 0.99


def test_larger_fleets_have_to_be_surer_of_each_node():
    assert deviations(4) == deviations(2) == 3.5
    assert deviations(1000) > deviations(100) > 3.5
