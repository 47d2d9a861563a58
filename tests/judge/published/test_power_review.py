"""Questions on the power logs of one run of a minute, read once a second from a second before it on."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlperf_logging.result_summarizer import result_summarizer

from tests.judge.campaigns import MINI, log_text
from train_bench.judge.energy import measure
from train_bench.judge.published.power_review import review_power
from train_bench.logs.record import read_record

READINGS = 62


@pytest.fixture
def record(tmp_path):
    (tmp_path / "result_0.txt").write_text(log_text("good", index=0, seconds=60))
    return read_record(tmp_path / "result_0.txt", MINI)[0]


def node(record, *, watts=lambda at: 300 + at * 37 % 91, unit=1, offset_s=0, efficiency=0.9, changed=()):
    """Lines of an honest log. `unit` is that of time_ms in milliseconds, `changed` replaces values by number."""
    begun = record.started_ms - 1000 + 1000 * offset_s
    values = [watts(at) for at in range(READINGS)]
    for at, value in dict(changed).items():
        values[at] = value
    lines = [("power_measurement_start", None, begun), ("conversion_eff", efficiency, begun)]
    lines += [("power_reading", value, begun + 1000 * (at + 1)) for at, value in enumerate(values)]
    lines.append(("power_measurement_stop", None, begun + 1000 * READINGS + 500))
    return [(key, value, round(time_ms / unit)) for key, value, time_ms in lines]


def write(record, *logs, name="node_{}.txt"):
    folder = record_folder(record) / "power" / "result_0"
    folder.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(logs):
        text = [
            json.dumps({"key": key, "value": value, "time_ms": at, "metadata": {}})
            for key, value, at in lines
        ]
        (folder / name.format(number)).write_text("".join(f":::MLLOG {line}\n" for line in text))


def record_folder(record):
    return Path(record.file).parent


def questions(record, *records):
    location = SimpleNamespace(folder=record_folder(record))
    return {one.check: one.message for one in review_power(location, [record, *records], None)}


def test_an_honest_log_raises_no_question(record):
    write(record, node(record))
    assert questions(record) == {}


@pytest.mark.parametrize(
    ("changes", "check", "sentence"),
    [
        ({"watts": lambda at: (300 + at * 37 % 91) / 1000}, "power_unit", "The mean of the readings is 0.3"),
        ({"changed": {5: 65_535_000}}, "power_unit", "The largest reading is 6.5535e+07 W"),
        ({"watts": lambda at: 300 * at}, "power_unit", "61 of 62 readings are above the one before"),
        ({"watts": lambda at: 300 * at % 9000}, "power_unit", "59 of 62 readings are above the one before"),
        ({"changed": {5: float("nan")}}, "power_reading", "1 power_reading without a number of watts"),
        ({"changed": {5: -300, 6: "n/a"}}, "power_reading", "2 power_reading without a number of watts"),
        ({"changed": {5: 1e300}}, "power_reading", "the first of them 1e+300"),
        ({"efficiency": 1e-9}, "power_efficiency", "conversion_eff is 1e-09"),
        ({"unit": 1000}, "power_window", "its times are in seconds"),
        ({"unit": 1 / 1000}, "power_window", "its times are in microseconds"),
        ({"offset_s": 3600}, "power_window", "it starts 3599.0 s after run_start"),
    ],
)
def test_readings_that_no_meter_of_a_node_gives_are_asked_about(record, changes, check, sentence):
    write(record, node(record, **changes))
    asked = questions(record)
    assert set(asked) == {check}
    assert sentence in asked[check]


def test_the_window_is_the_one_that_the_energy_is_taken_from(record):
    """The log of an earlier session of the meter, followed by that of the run."""
    write(record, [*node(record, offset_s=-3600), *node(record)])
    asked = questions(record)
    assert "There are 2 power_measurement_" in asked["power_marks"]
    assert "it starts 3601.0 s before run_start" in asked["power_window"]


def test_a_second_stop_does_not_hide_that_the_first_came_too_early(record):
    lines = node(record)
    stop = ("power_measurement_stop", None, record.started_ms + 30_000)
    write(record, [stop, *lines])
    assert "to 30.0 s before run_stop" in questions(record)["power_window"]


def test_a_log_that_cannot_be_read_is_asked_about_with_the_cause(record):
    write(record, node(record))
    path = record_folder(record) / "power" / "result_0" / "node_0.txt"
    path.write_text(path.read_text(), encoding="utf-16")
    path.with_name("sw_0.txt").mkdir()
    asked = questions(record)
    assert "UTF-16" in asked["power_few"]
    assert "it is not a file" in asked["power_switch"]


def test_broken_lines_between_the_others_are_counted(record):
    write(record, node(record))
    path = record_folder(record) / "power" / "result_0" / "node_0.txt"
    path.write_text(path.read_text().replace('"power_reading", "value"', '"power_reading" "value"', 2))
    assert questions(record) == {"power_format": "2 line(s) cannot be read; the energy leaves them out."}


def test_the_log_of_a_node_that_is_a_copy_of_another_is_named(record):
    write(record, node(record), node(record))
    assert questions(record) == {
        "power_copy": "The power log is a copy of node_0.txt; one of the two was not measured."
    }


def test_the_log_of_a_run_that_is_a_copy_of_another_run_is_named(record, tmp_path):
    write(record, node(record))
    folder = tmp_path / "power"
    (folder / "result_0").rename(folder / "result_1")
    write(record, node(record))
    other = replace(record, file=str(tmp_path / "result_1.txt"))
    assert "is a copy of result_0/node_0.txt" in questions(record, other)["power_copy"]


def test_an_empty_log_of_a_switch_counts_as_the_official_summarizer_counts_it(record, tmp_path):
    write(record, node(record))
    (tmp_path / "power" / "result_0" / "sw_0.txt").write_text("")
    official = result_summarizer._compute_total_power(str(tmp_path), "result_0.txt", 60_000, "4.1.0")
    assert measure(record).joules == pytest.approx(official)
    assert set(questions(record)) == {"power_switch"}


@pytest.mark.parametrize("name", ["node_{}.txt.gz", "node_{}.log", "Node_{}.txt"])
def test_a_folder_without_a_log_of_a_node_names_what_it_has(record, name):
    write(record, node(record), name=name)
    assert measure(record) == f"power/result_0 has no node_K.txt, but {name.format(0)}"


@pytest.mark.parametrize(("efficiency", "shown"), [(90, "90"), ("90%", "'90%'"), (1.1, "1.1")])
def test_an_efficiency_that_is_none_is_shown(record, efficiency, shown):
    write(record, node(record, efficiency=efficiency))
    assert measure(record).endswith(
        f"has a conversion_eff that is not a number above 0 and at most 1: {shown}"
    )
