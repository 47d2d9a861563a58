"""From round 6.1 on, what a program prints stands in its result file between the lines of its log."""

import os

import pytest

from train_bench.logs import log
from train_bench.own_trainer import output
from train_bench.own_trainer.output import OutputInLog
from train_bench.run import events

LINE = b':::MLLOG {"key": "run_start", "value": null, "time_ms": 1, "metadata": {}}\n'


@pytest.fixture
def printing(tmp_path):
    """Gives a function that lets a program print, and returns the log once it has ended."""

    def carried(*printed, begun=LINE):
        path = tmp_path / "result_0.txt.part"
        if begun is not None:
            path.write_bytes(begun)
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe:
            copying = OutputInLog(pipe, path)
            for text in printed:
                os.write(writing, text)
            os.close(writing)
            copying.close()
        return path

    return carried


def test_lines_are_added_behind_those_of_the_log_and_printed_as_before(printing, capfd):
    path = printing(b"loss 1.5\nloss", b" 1.25\nand no end")
    assert path.read_bytes() == LINE + b"loss 1.5\nloss 1.25\nand no end\n"
    assert capfd.readouterr().out == "loss 1.5\nloss 1.25\nand no end"


def test_the_judge_reads_the_log_as_if_nothing_stood_between_its_lines(printing, tmp_path):
    path = printing(b'{"key": "run_stop"}\n', b"\xff\xfe \r\n" * 3, b"MLLOG\n")
    path.write_bytes(path.read_bytes() + LINE.replace(b"start", b"stop"))
    read = log.read(path)
    assert [event.key for event in read.events] == ["run_start", "run_stop"]
    assert read.problems == ()


def test_mllog_lines_that_are_printed_are_not_counted_a_second_time(printing):
    assert printing(LINE, b"else\n").read_bytes() == LINE + b"else\n"


def test_whoever_writes_the_log_writes_behind_what_was_printed(tmp_path):
    path = tmp_path / "result_0.txt.part"
    path.touch()
    ours = events.Log(path, lambda: 1)
    ours.init_start()
    with path.open("a") as others:
        others.write("loss 1.5\n")
    ours.init_stop()
    ours.close()
    assert [":::MLLOG" in line for line in path.read_text().splitlines()] == [True, False, True]


def test_what_is_printed_before_the_log_begins_waits_for_it(printing):
    assert not printing(b"compiling\n", begun=None).exists(), "only the program makes its log"


def test_a_result_file_has_a_bound_and_says_where_the_rest_is(printing, monkeypatch):
    monkeypatch.setattr(output, "LARGEST_BYTES", len(LINE) + 10)
    added = printing(b"12345678\n", b"too much\n", b"more\n").read_bytes().removeprefix(LINE).splitlines()
    assert added == [
        b"12345678",
        b"train_bench: the rest of what was printed is in ranks/; this file has 100 MiB.",
    ]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "full disk"])
def test_a_log_that_cannot_be_written_does_not_hold_the_program_up(printing, tmp_path, capfd, kind):
    """More is printed than a pipe holds."""
    path = tmp_path / "result_0.txt.part"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "other").write_bytes(LINE)
        path.symlink_to(tmp_path / "other")
    else:
        path.symlink_to("/dev/full")
    printing(*[b"line\n" * 10_000] * 4, begun=None)
    assert capfd.readouterr().out == "line\n" * 40_000
    assert kind != "link" or (tmp_path / "other").read_bytes() == LINE


def test_only_rounds_that_want_it_have_it():
    assert OutputInLog.due("training-6.1.0")
    assert not OutputInLog.due("training-6.0.0")
    assert not OutputInLog.due("mini-1.0")
