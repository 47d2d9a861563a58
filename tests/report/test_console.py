"""Width of what is printed: that of the terminal, also through a pipe; long names break where people would."""

import io
import os
import pty
import subprocess
import sys

import pytest
from rich.table import Table
from rich.text import Text

from train_bench.errors import OutputClosed
from train_bench.report import accept
from train_bench.report.console import PlainConsole, print_line

NAME = "results/20261126T090000Z_llama31_8b_mini-torchrun"


def shown(width, *items):
    file = io.StringIO()
    console = PlainConsole(file=file, width=width)
    for item in items:
        console.print(item)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("cell", [NAME, Text(NAME)])
def test_a_name_in_a_table_breaks_behind_its_signs(cell):
    table = Table.grid()
    table.add_column(overflow="fold")
    table.add_row(cell)
    lines = [line.strip() for line in shown(20, table)]
    assert "".join(lines) == NAME
    assert all(line[-1] in "/_-" for line in lines[:-1])
    assert all(len(line) <= 20 for line in lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a key run_stop stays", ["a key", "run_stop", "stays"]),
        ("a_b", ["a_b"]),
        ("", [""]),
        ("no sign abcdefghijklmnop", ["no sign", "abcdefghij", "klmnop"]),
        ("one\ntwo_three_four", ["one", "two_three_", "four"]),
    ],
)
def test_a_word_that_fits_a_line_is_not_broken(text, lines):
    assert [line.rstrip() for line in shown(10, text)] == lines


def test_a_sentence_is_wrapped_at_words_and_its_path_can_be_copied():
    file = io.StringIO()
    path = "/a/long/path/of-some_campaign/result_0.txt"
    print_line(PlainConsole(file=file, width=30), f"NOT VALID: the log {path} breaks the rules of its round.")
    lines = file.getvalue().splitlines()
    assert path in (line.strip() for line in lines)
    assert max(len(line) for line in lines if path not in line) <= 30


PRINT = "from train_bench.report.console import make_console; print(make_console().width)"


def width_of(stdout, stdin):
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", PRINT]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.DEVNULL, stdin=stdin, env=environ)


def test_a_pipe_on_a_terminal_has_its_width_and_a_file_has_none(tmp_path):
    person, terminal = pty.openpty()
    piped = width_of(subprocess.PIPE, terminal).stdout
    with (tmp_path / "out").open("wb") as file:
        width_of(file, terminal)
    os.close(person)
    os.close(terminal)
    assert int(piped) < 10_000
    assert (tmp_path / "out").read_text() == "10000\n"
    assert width_of(subprocess.PIPE, subprocess.DEVNULL).stdout == b"10000\n"


def test_a_table_in_a_file_is_no_wider_than_can_be_read_and_a_sentence_stays_whole():
    table = Table()
    table.add_row("a", "word " * 100)
    assert max(map(len, shown(10_000, table))) == 160
    assert len(shown(10_000, "word " * 100)) == 1


def test_further_lines_of_a_sentence_begin_at_their_column():
    file = io.StringIO()
    print_line(PlainConsole(file=file, width=30), "folder      one two three four five six seven", column=12)
    assert file.getvalue().splitlines() == [
        "folder      one two three four",
        "            five six seven",
    ]


def test_the_table_of_a_fleet_loses_nothing_on_a_narrow_terminal():
    node = {
        "name": "node-of-rack-17",
        "trainings": [{"seconds": 123.4, "waited": 0.65, "weights": "748bc3aa"}],
        "ahead": 0.0,
        "longer": 0.151,
        "mfu": 0.415,
        "verdict": "cannot tell",
    }
    content = {"nodes": [node], "findings": [], "undecided": [], "notes": [], "verdict": "cannot tell"}
    file = io.StringIO()
    accept.show(content, PlainConsole(file=file, width=72))
    shown = file.getvalue()
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 72
    for cell in ("123.40", "+15.1", "65.0", "41.5", "748bc3aa", "usual,", "ahead,"):
        assert cell in shown


@pytest.mark.parametrize("last", ["a/very_long-name/" * 8, "short"])
def test_a_closed_pipe_raises_and_nothing_is_printed_any_more(last, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(os, "dup2", lambda *_: None)
    console = PlainConsole(file=Closed(), width=40)
    with pytest.raises(OutputClosed):
        console.print(last)
    console.print(last)
