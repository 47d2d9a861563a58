"""The log of a program that has ended is read, and ended where its clock still runs."""

import json
import os

import pytest

from train_bench.errors import LaunchError
from train_bench.own_trainer import program_log
from train_bench.own_trainer.program_log import ProgramLog


def line(key, time_ms=5, **metadata):
    return f":::MLLOG {json.dumps({'key': key, 'value': None, 'time_ms': time_ms, 'metadata': metadata})}\n"


@pytest.fixture
def log(tmp_path):
    def of(*lines):
        path = tmp_path / "result_0.txt.part"
        path.write_text("".join(lines))
        return ProgramLog.of(path)

    return of


def test_one_run_that_reached_its_target_is_a_result(log):
    whole = log(line("run_start"), "loss 3\n", line("run_stop", status="success"))
    assert whole.is_result
    assert (whole.lines, whole.starts, whole.stops) == (2, 1, 1)
    assert not log(line("run_start"), line("run_stop", status="aborted")).is_result
    twice = log(line("run_start"), line("run_stop", status="success"), line("run_stop", status="success"))
    assert not twice.is_result


def test_no_log_and_no_object_are_nothing(tmp_path, log):
    assert ProgramLog.of(tmp_path / "none").lines == 0
    assert (
        log(":::MLLOG []\n", ":::MLLOG {\n", ":::MLLOG {}\n", line(["run_stop"]), line("a", 1e400)).lines == 0
    )


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "9" * 10_000, "\udcff"])
def test_a_line_of_which_no_object_can_be_made_is_passed_over(tmp_path, text):
    path = tmp_path / "log"
    deep = f":::MLLOG {text}\n".encode(errors="surrogateescape")
    path.write_bytes(deep + line("run_start").encode())
    assert (ProgramLog.of(path).lines, ProgramLog.of(path).starts) == (1, 1)


def test_a_clock_that_runs_is_stopped_and_half_a_line_gives_way(log):
    cut = log(line("run_start", time_ms=10**13), line("block_start"), ':::MLLOG {"key": "block')
    cut.end()
    *before, last = cut.path.read_text().splitlines(keepends=True)
    assert before == [line("run_start", time_ms=10**13), line("block_start")]
    told = json.loads(last.removeprefix(":::MLLOG "))
    assert (told["key"], told["metadata"]["status"]) == ("run_stop", "aborted")
    assert ProgramLog.of(cut.path).stops == 1


@pytest.mark.parametrize(
    "lines", [[], [line("init_start")], [line("run_start"), line("run_stop", status="success")]]
)
def test_what_has_no_running_clock_stays_as_it_is(log, lines):
    found = log(*lines)
    found.end()
    assert found.path.read_text() == "".join(lines)


def test_no_time_steps_back(log):
    late = log(line("run_start", time_ms=4 * 10**12))
    late.end()
    assert ProgramLog.of(late.path).last_ms == 4 * 10**12


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "large"])
def test_what_is_no_log_is_refused_in_a_sentence(tmp_path, monkeypatch, kind):
    path = tmp_path / "result_0.txt.part"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        monkeypatch.setattr(program_log, "LARGEST_BYTES", 10)
        path.write_text(line("run_start"))
    with pytest.raises(LaunchError, match=r"its log .* cannot be read"):
        ProgramLog.of(path)


def test_nothing_is_written_through_a_link(tmp_path):
    other = tmp_path / "other"
    other.write_text(line("run_start"))
    (tmp_path / "log").symlink_to(other)
    with pytest.raises(LaunchError, match="cannot be read"):
        ProgramLog.of(tmp_path / "log").end()
    assert other.read_text() == line("run_start")
