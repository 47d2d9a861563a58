"""Power logs of runs from rows whose energy is known."""

import json
from itertools import pairwise

import pytest
from mlperf_logging.compliance_checker.mlp_parser import parse_file
from mlperf_logging.mllog.constants import POWER_MEASUREMENT_START, POWER_MEASUREMENT_STOP, POWER_READING
from mlperf_logging.result_summarizer.result_summarizer import _compute_power_node

from train_bench.energy.readings import Row, Rows, power_log, validate
from train_bench.judge import energy
from train_bench.logs import log

FIRST = {"sources": ["RAPL package-0", "NVML 0"], "reasons": [], "idle_watts": 60}

COMMANDED = {**FIRST, "sources": ["energy_command", "energy_command"]}


def rows(seconds, *, watts=(100, 200), period=0.5, stops_at=(1e9, 1e9)):
    """Two sources that take so many watts each, until they stop counting."""
    times = [step * period for step in range(int(seconds / period) + 1)]
    return Rows(
        first=FIRST,
        readings=[
            Row(
                int(1000 * time),
                tuple(power * min(time, stop) for power, stop in zip(watts, stops_at, strict=True)),
            )
            for time in times
        ],
    )


def written(tmp_path, text):
    path = tmp_path / "node_0.txt"
    path.write_text(text)
    return path


def test_the_log_of_a_run_tells_its_mean_power_in_the_official_keys(tmp_path):
    path = written(tmp_path, power_log(rows(60), 10_200, 21_900, {"nodes": 1}))
    events = log.read(path).events
    assert [event.key for event in events][:2] == [POWER_MEASUREMENT_START, POWER_READING]
    assert events[-1].key == POWER_MEASUREMENT_STOP
    assert energy._node(events) == pytest.approx(300)


def test_the_log_begins_just_before_the_run_ends_just_after_it_and_has_a_reading_each_second(tmp_path):
    events = log.read(written(tmp_path, power_log(rows(60), 10_200, 21_900, {}))).events
    times = [event.time_ms for event in events]
    assert (times[0], times[-1]) == (10_199, 21_901)
    assert max(after - before for before, after in pairwise(times)) <= 1000


def test_power_outside_the_run_does_not_count(tmp_path):
    readings = [Row(0, (0, 0)), Row(10_000, (1_000, 0)), Row(20_000, (4_000, 0)), Row(30_000, (4_100, 0))]
    events = log.read(written(tmp_path, power_log(Rows(FIRST, readings), 10_001, 19_999, {}))).events
    assert energy._node(events) == pytest.approx(300)


def test_the_official_summarizer_reads_the_same_energy(tmp_path):
    path = written(tmp_path, power_log(rows(60), 10_200, 21_900, {}))
    lines, _ = parse_file(str(path), ruleset="4.0.0")
    assert _compute_power_node(lines, 11_700) == pytest.approx(300 * 11.7)


def test_the_log_names_its_source_and_that_it_is_no_measurement_of_mlperf_power():
    first = json.loads(
        power_log(rows(60), 1_000, 9_000, {"idle_watts": 60}).splitlines()[0][len(":::MLLOG ") :]
    )
    assert first["metadata"]["source"] == "RAPL package-0, NVML 0"
    assert "not a measurement of MLPerf power" in first["metadata"]["what"]
    assert first["metadata"]["idle_watts"] == 60


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (rows(60), None),
        (rows(60, stops_at=(1e9, 30.0)), "NVML 0 has stopped: no change for 20.0 s"),
        (rows(60, watts=(100, 0)), "NVML 0 has stopped: no change for 39.9 s"),
        (rows(60, stops_at=(1e9, 48.0)), None),
        (Rows(COMMANDED, rows(60, stops_at=(45.0, 41.0)).readings), None),
        (rows(40), "the sampler wrote no readings for a part of it"),
        (Rows(FIRST, []), "the sampler wrote no readings for a part of it"),
        (Rows(FIRST, rows(40).readings, lost="NVML 0 has disappeared"), "NVML 0 has disappeared"),
        (Rows(FIRST, rows(60).readings, lost="NVML 0 has disappeared"), None),
    ],
)
def test_readings_that_do_not_cover_a_run_are_told_from_those_that_do(taken, why):
    assert validate(taken, 10_100, 50_000) == why


def test_a_counter_that_did_not_change_in_all_of_a_short_run_has_stopped():
    assert validate(rows(60, stops_at=(1e9, 9.0)), 10_100, 12_100).startswith("NVML 0 has stopped")
