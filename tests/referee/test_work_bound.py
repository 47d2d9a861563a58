"""Least time of the work that a run claims, by its samples and by what processors or accelerators can do."""

import json
from types import SimpleNamespace

import pytest

from train_bench.referee import work_bound
from train_bench.referee.challenge import below_bound
from train_bench.referee.work_bound import nearest

GPU = "NVIDIA A100-SXM4-80GB"


def judged(folder, machine, *, samples=1000.0, minutes=0.1, used=None):
    """A campaign of one run of six seconds, unless told otherwise, whose processes used so many of processors."""
    if used is not None:
        (folder / "attempts").mkdir(exist_ok=True)
        seen = {"seconds": 9.0, "clock_processor_seconds": used}
        (folder / "attempts" / "run_0_1.json").write_text(json.dumps({"observed": seen}))
    record = SimpleNamespace(index=0, file="result_0.txt", samples=samples, minutes=minutes)
    return SimpleNamespace(
        location=SimpleNamespace(folder=folder, machine=machine, attempts={}), records=[record]
    )


@pytest.mark.parametrize(
    ("machine", "used", "flop", "had", "least"),
    [
        ({"accelerators": [], "cores": 2}, None, 1e9, 12.0, 100.0),
        ({"accelerators": [], "cores": 2}, 3.0, 1e8, 3.0, 10.0),
        ({"accelerators": [GPU] * 2, "cores": 64}, 3.0, 1e12, 6.0, 1000 / 624),
    ],
)
def test_the_work_of_a_run_takes_its_samples_over_the_speed_of_its_host(
    tmp_path, monkeypatch, machine, used, flop, had, least
):
    if used is not None:
        monkeypatch.setattr(
            work_bound, "observed_of", lambda location, index: SimpleNamespace(clock_processor_seconds=used)
        )
    else:
        monkeypatch.setattr(work_bound, "observed_of", lambda location, index: None)
    found = nearest(judged(tmp_path, {}), machine, flop, 1e10)
    assert (found.seconds, found.least_seconds) == pytest.approx((had, least))
    assert found.share == pytest.approx(least / had)


@pytest.mark.parametrize(
    ("machine", "core_flops"),
    [({"accelerators": [], "cores": 2}, None), ({"accelerators": ["unknown"], "cores": 2}, 1e10), ({}, 1e10)],
)
def test_without_a_known_speed_there_is_no_bound(tmp_path, machine, core_flops):
    assert nearest(judged(tmp_path, {}), machine, 1e9, core_flops) is None
    assert below_bound(None) == ([], [])


@pytest.mark.parametrize(
    ("of_accelerators", "seconds", "reasons", "questions"),
    [(True, 1.0, 1, 0), (False, 1.0, 0, 1), (True, 3.0, 0, 0), (False, 3.0, 0, 0), (False, 0.0, 0, 1)],
)
def test_a_time_below_the_bound_is_refused_or_asked_about_with_its_numbers(
    of_accelerators, seconds, reasons, questions
):
    bound = work_bound.WorkBound(
        file="result_0.txt", flop=4e12, least_seconds=4.0, seconds=seconds, of_accelerators=of_accelerators
    )
    impossible, asked = below_bound(bound)
    assert (len(impossible), len(asked)) == (reasons, questions)
    for said in (*impossible, *asked):
        assert "result_0.txt of the challenger claims 4e+12 operations" in said and "they take 4 s" in said


def test_the_speed_of_a_processor_counts_its_own_time_and_all_operations(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(work_bound.time, "process_time", lambda: next(clock) * 0.5)
    assert work_bound.measured_core_flops() == 2 * work_bound.WIDTH**3 / 0.5
