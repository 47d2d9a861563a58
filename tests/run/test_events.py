"""Times and lines of a log: a clock that nobody can set, one file, one writer."""

import json
from types import SimpleNamespace

import pytest

from train_bench.errors import LaunchError, WriteError
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.run import events
from train_bench.run.events import Log, claim, wall_clock_ms


@pytest.fixture
def machine(monkeypatch):
    """Both clocks of the machine, in seconds."""
    machine = SimpleNamespace(wall=1_700_000_000.0, monotonic=50.0)
    clocks = {name: lambda name=name: getattr(machine, name) for name in ("wall", "monotonic")}
    monkeypatch.setattr(events, "time", SimpleNamespace(time=clocks["wall"], monotonic=clocks["monotonic"]))
    return machine


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 3600.0])
def test_a_wall_clock_that_is_set_during_a_run_changes_no_time(machine, jump):
    now = wall_clock_ms()
    first = now()
    machine.wall += jump
    machine.monotonic += 12.5
    assert (first, now()) == (1_700_000_000_000, 1_700_000_012_500)


def test_times_of_a_continued_run_come_behind_those_of_its_earlier_start(machine):
    earlier = 1_700_000_060_000
    now = wall_clock_ms(earlier)
    assert now() == earlier
    machine.monotonic += 1
    assert now() == earlier + 1000
    assert wall_clock_ms(earlier - 120_000)() == 1_700_000_000_000


def test_a_log_belongs_to_the_process_that_made_its_file(tmp_path):
    claim(tmp_path / "log")
    with pytest.raises(LaunchError, match="a run has one rank 0"):
        claim(tmp_path / "log")


def test_a_line_is_in_the_file_when_its_call_returns_with_the_time_of_the_call(tmp_path):
    """Every method of a run, in turn, with a clock that moves by a second at each look at it."""
    seconds = iter(range(100))
    log = Log(tmp_path / "log", lambda: next(seconds) * 1000)
    next_second = next(seconds)
    mark = Mark(count=100, epoch_num=1, first_epoch_num=1, epoch_count=1)
    calls = {
        "init_start": (),
        "init_stop": (),
        "run_start": (),
        "block_start": (mark,),
        "block_stop": (mark,),
        "eval_start": (mark,),
        "eval_stop": (mark,),
        "checkpoint_start": (mark,),
        "checkpoint_stop": (mark,),
        "run_stop": ("success",),
    }
    for method, arguments in calls.items():
        next_second += 1
        getattr(log, method)(*arguments)
        *_, line = (tmp_path / "log").read_text().splitlines()
        event = json.loads(line.removeprefix(":::MLLOG "))
        assert (event["key"], event["time_ms"]) == (method, next_second * 1000)
        kind = "INTERVAL_START" if method.endswith("start") else "INTERVAL_END"
        assert event["event_type"] == kind
    log.close()


def test_the_value_of_an_evaluation_is_logged_in_full(tmp_path):
    log = Log(tmp_path / "log", lambda: 1)
    mark = Mark(count=100, epoch_num=1.5, first_epoch_num=1, epoch_count=1)
    log.accuracy(mark, Quality(metrics={"top1": 0.123456789012345}))
    log.extras(mark, Progress(samples=100, extras={"steps": 7}))
    first, second = (
        json.loads(line.removeprefix(":::MLLOG ")) for line in (tmp_path / "log").read_text().splitlines()
    )
    assert (first["value"], first["metadata"]["epoch_num"]) == (0.123456789012345, 1.5)
    assert (second["key"], second["value"], second["metadata"]["epoch_num"]) == ("steps", 7, 1.5)
    log.close()


def test_a_line_that_is_written_in_part_ends_the_run(tmp_path, monkeypatch):
    log = Log(tmp_path / "log", lambda: 0)
    file = log._witness._file
    monkeypatch.setattr(
        log._witness, "_file", SimpleNamespace(write=lambda line: file.write(line[:-5]), close=file.close)
    )
    with pytest.raises(WriteError, match="No space is left"):
        log.init_start()
    log.close()
