"""Energy from the power logs of the facts' form."""

import json

import pytest
from mlperf_logging.result_summarizer import result_summarizer

from tests.judge.campaigns import MINI, log_text
from train_bench.judge.energy import WITHOUT_LOGS, kept_energy, measure
from train_bench.logs.record import read_record


def power_log(path, lines, **stated):
    """Of `(seconds, key, value)`; each line has what is `stated`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(
            f":::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': 1000 * seconds, 'metadata': stated})}\n"
            for seconds, key, value in lines
        )
    )


STEADY = [
    (100, "power_measurement_start", None),
    (110, "power_reading", {"value": 200}),
    (130, "power_reading", {"value": 500}),
    (130, "power_measurement_stop", None),
]


PLAIN = [
    (seconds, key, value["value"] if isinstance(value, dict) else value) for seconds, key, value in STEADY
]


def write(path, lines, metadata):
    """A log of `(key, value, time_ms)`."""
    text = [
        json.dumps({"key": key, "value": value, "time_ms": at, "metadata": metadata})
        for key, value, at in lines
    ]
    path.write_text("".join(f":::MLLOG {one}\n" for one in text))


@pytest.fixture
def record(tmp_path):
    """A run of one minute."""
    (tmp_path / "result_0.txt").write_text(log_text("good", index=0, seconds=60))
    return read_record(tmp_path / "result_0.txt", MINI)[0]


def test_energy_is_the_mean_power_of_the_measurement_times_the_time_to_train(tmp_path, record):
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", STEADY)
    assert measure(record).joules == pytest.approx((200 * 10 + 500 * 20) / 30 * 60)


def test_nodes_and_switches_add_up_and_conversion_counts(tmp_path, record):
    folder = tmp_path / "power" / "result_0"
    power_log(folder / "node_0.txt", STEADY)
    power_log(folder / "node_1.txt", [*STEADY, (131, "conversion_eff", {"value": 0.5})])
    power_log(folder / "sw_0.txt", [(0, "interconnect_power_est", {"value": 50})])
    assert measure(record).joules == pytest.approx((400 + 200 + 50) * 60)


def test_without_a_stop_the_last_reading_ends_the_measurement(tmp_path, record):
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", STEADY[:3])
    assert measure(record).joules == pytest.approx(400 * 60)


@pytest.mark.parametrize("lines", [[], STEADY[1:], STEADY[:1], [(1, "power_reading", {"value": "much"})]])
def test_a_node_that_tells_no_power_leaves_the_energy_unknown(tmp_path, record, lines):
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", STEADY)
    power_log(tmp_path / "power" / "result_0" / "node_1.txt", lines)
    assert isinstance(measure(record), str)


def test_energy_above_idle_takes_off_the_idle_power_that_the_logs_of_a_campaign_state(tmp_path, record):
    folder = tmp_path / "power" / "result_0"
    power_log(folder / "node_0.txt", STEADY, idle_watts=150, source="RAPL package-0", nodes=2)
    assert isinstance(measure(record), str)  # one of two hosts
    power_log(folder / "node_1.txt", STEADY, idle_watts=50, source="NVML 0", nodes=2)
    energy = measure(record)
    assert energy.above_idle == pytest.approx((2 * 400 - 200) * 60)
    assert energy.sources == ("RAPL package-0", "NVML 0")
    power_log(folder / "node_1.txt", STEADY, source="NVML 0")
    assert measure(record).above_idle is None
    assert measure(record).joules == pytest.approx(2 * 400 * 60)
    reason = "power/result_0/node_1.txt states no idle power (idle_watts of power_measurement_start)"
    assert measure(record).above_idle_reason == reason
    assert energy.above_idle_reason is None
    power_log(folder / "node_1.txt", STEADY, idle_watts="low")
    reason = "power/result_0/node_1.txt has idle_watts 'low', which is not a number of watts"
    assert measure(record).above_idle_reason == reason
    power_log(folder / "node_1.txt", STEADY, idle_watts=50)
    power_log(folder / "sw_0.txt", [(0, "interconnect_power_est", {"value": 50})])
    assert measure(record).above_idle_reason.startswith("power/result_0/sw_0.txt states no idle power")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "power/result_0/node_0.txt has no readable line"),
        ([*STEADY, (131, "conversion_eff", 95)], "conversion_eff that is not a number above 0 and at most 1"),
        (
            [(0, "power_reading", {"value": 9}), (5, "power_measurement_start", None)],
            "no power_reading between",
        ),
        (STEADY[1:], "power/result_0/node_0.txt has no power_measurement_start"),
        (STEADY[:1], "power/result_0/node_0.txt has no power_reading"),
        ([STEADY[0], (1, "power_reading", "much")], "has 1 power_reading without a number of watts"),
        ([*STEADY, (131, "conversion_eff", 0)], "conversion_eff that is not a number above 0 and at most 1"),
        ([(130, *STEADY[0][1:]), *STEADY[1:3]], "has no reading after its start"),
    ],
)
def test_an_unknown_energy_has_a_reason(tmp_path, record, lines, reason):
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", lines)
    assert reason in measure(record)


def test_a_run_without_power_logs_says_which_folder_is_missing(tmp_path, record):
    assert measure(record) == WITHOUT_LOGS
    (tmp_path / "power" / "result_1").mkdir(parents=True)
    assert measure(record) == "there is no folder power/result_0"
    (tmp_path / "power" / "result_0").mkdir()
    assert measure(record) == "power/result_0 has no node_K.txt"


@pytest.mark.parametrize("metadata", ["", None, [], "node 0"])
def test_power_logs_are_read_as_the_official_summarizer_reads_them(tmp_path, record, metadata):
    """Metadata that is no object, times as texts, a stop below the last reading in the file."""
    folder = tmp_path / "power" / "result_0"
    lines = [(key, value, str(1000 * seconds)) for seconds, key, value in PLAIN]
    path = folder / "node_0.txt"
    path.parent.mkdir(parents=True)
    write(path, lines, metadata)
    write(folder / "sw_0.txt", [("conversion_eff", 0.5, 0), ("interconnect_power_est", 50, 1)], metadata)
    write(folder / "sw_1.txt", [("interconnect_power_est", 50, 1), ("conversion_eff", 0.5, 2)], metadata)
    write(folder / "sw_2.txt", [("power_reading", 50, 1)], metadata)
    official = result_summarizer._compute_total_power(str(tmp_path), "result_0.txt", 60_000, "4.0.0")
    assert measure(record).joules == pytest.approx(official)
    assert official == pytest.approx((400 + 25 + 50) * 60)


def test_a_stop_that_is_not_after_the_start_is_no_end(tmp_path, record):
    """As in the power submissions of round 4.0."""
    lines = [*STEADY[:3], (100, "power_measurement_stop", "null")]
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", lines)
    assert measure(record).joules == pytest.approx(400 * 60)


def test_without_power_logs_there_is_no_energy(record):
    assert isinstance(measure(record), str)


def test_the_energy_of_an_entry_is_the_mean_of_the_runs_that_the_score_keeps(tmp_path):
    records = []
    for index, watts in enumerate((100, 200, 300)):
        (tmp_path / f"result_{index}.txt").write_text(log_text("good", index=index, seconds=60))
        records.append(read_record(tmp_path / f"result_{index}.txt", MINI)[0])
        lines = [(0, "power_measurement_start", None), (10, "power_reading", watts)]
        power_log(tmp_path / "power" / f"result_{index}" / "node_0.txt", lines)
    assert kept_energy(records, [True, False, False]).joules == pytest.approx(250 * 60)
    assert isinstance(kept_energy(records, [True, True, True]), str)


def test_an_idle_power_above_the_measured_one_leaves_the_energy_above_idle_unknown(tmp_path, record):
    power_log(tmp_path / "power" / "result_0" / "node_0.txt", STEADY, idle_watts=900)
    energy = measure(record)
    assert energy.above_idle is None
    reason = "the stated idle power, 900.0 W, is above the measured power, 400.0 W"
    assert energy.above_idle_reason == reason


def test_a_power_log_that_cannot_be_read_is_named_with_the_cause(tmp_path, record):
    path = tmp_path / "power" / "result_0" / "node_0.txt"
    power_log(path, STEADY)
    path.write_text(path.read_text(), encoding="utf-16")
    assert "UTF-16" in measure(record)
