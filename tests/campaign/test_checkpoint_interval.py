"""Young's and Daly's formulas against a simulation of a machine that fails."""

import math
import random
from statistics import fmean

import pytest

from train_bench.campaign.checkpoint_interval import daly_interval, daly_time, young_interval, young_time
from train_bench.campaign.checkpoint_interval import expected as expected_of
from train_bench.logs.restarts import Restarts


def simulated(training, interval, *, mtbf, checkpoint, restart, runs=400, seed=1):
    """Mean seconds of a run of whole intervals, each of which ends with a checkpoint."""
    draws = random.Random(seed)
    times = []
    for _ in range(runs):
        now, fails, done = 0.0, draws.expovariate(1 / mtbf), 0
        while done < round(training / interval):
            end = now + interval + checkpoint
            if fails >= end:
                now, done = end, done + 1
                continue
            while fails < end:  # and again, if it fails before it is up
                now, end = fails, fails + restart
                fails = now + draws.expovariate(1 / mtbf)
            now = end
        times.append(now)
    return fmean(times)


@pytest.mark.parametrize("mtbf", [20.0, 60.0, 240.0])
@pytest.mark.parametrize("interval", [2.0, 10.0])
def test_dalys_expected_time_is_that_of_a_simulation(mtbf, interval):
    costs = {"mtbf": mtbf, "checkpoint": 0.5, "restart": 4.0}
    assert daly_time(100, interval, **costs) == pytest.approx(simulated(100, interval, **costs), rel=0.04)


def test_youngs_expected_time_is_dalys_where_failures_are_rare():
    costs = {"mtbf": 10_000.0, "checkpoint": 0.5, "restart": 4.0}
    assert young_time(100, 10, **costs) == pytest.approx(daly_time(100, 10, **costs), rel=1e-3)
    costs["mtbf"] = 20.0
    assert young_time(100, 10, **costs) < daly_time(100, 10, **costs)


@pytest.mark.parametrize("mtbf", [5.0, 60.0, 1e5])
def test_dalys_interval_is_the_best_of_his_expected_time(mtbf):
    costs = {"mtbf": mtbf, "checkpoint": 0.5, "restart": 4.0}
    best = min((10 ** (step / 200) for step in range(-400, 801)), key=lambda t: daly_time(100, t, **costs))
    assert daly_interval(mtbf, 0.5) == pytest.approx(best, rel=0.03)
    assert young_interval(mtbf, 0.5) == pytest.approx(math.sqrt(mtbf))


def test_a_checkpoint_that_takes_longer_than_the_machine_lasts_is_written_once_in_that_time():
    assert daly_interval(10, 25) == 10
    assert daly_time(100, 1e6, mtbf=1, checkpoint=1, restart=1) == math.inf


def test_a_run_without_a_checkpoint_has_nothing_to_expect():
    costs = {"lost_seconds": 0, "restart_seconds": 0, "last_restarts": 0, "checkpoint_seconds": 0}
    nothing = Restarts(runs=1, failures=0, restored=0, checkpoints=0, seconds=9, interval_seconds=0, **costs)
    assert expected_of(nothing, 60) is None
