"""Text of other people is shown as text: in terminals, in tables of spreadsheets, in Markdown."""

import csv
import io
import os
import subprocess
import sys

import pytest
from rich.table import Table

from tests.command_line import typed
from tests.judge.test_bad_logs import HEAD, good_log
from train_bench.core.escape import plain, plain_value
from train_bench.logs import log
from train_bench.report import results_table
from train_bench.report.console import PlainConsole

CLEAR, FORGED = "\x1b[2J", "machine\nVALID"


def shown(*items, **options):
    file = io.StringIO()
    console = PlainConsole(file=file, width=100, **options)
    for item in items:
        console.print(item)
    return file.getvalue()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a name", "a name"),
        (CLEAR, r"\x1b[2J"),
        (FORGED, r"machine\nVALID"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\ud800", r"\ud800"),
        ("\x9b31m", r"\x9b31m"),
        ("größe 大", "größe 大"),
    ],
)
def test_what_cannot_be_printed_is_an_escape(text, printed):
    assert plain(text) == printed
    assert plain_value({text: [text, 1, {"deep": text}]}) == {printed: [printed, 1, {"deep": printed}]}


def test_a_console_takes_no_markup_and_lets_nothing_move_the_cursor():
    table = Table()
    table.add_column("entry")
    table.add_row(f"[/x] [red]{CLEAR}")
    text = shown(f"{CLEAR}[/x] :smile:", table, force_terminal=True, color_system=None)
    assert r"\x1b[2J[/x] :smile:" in text
    assert "[/x] [red]" in text
    assert "\x1b[2J" not in text


def test_a_console_keeps_its_own_colours_and_lines():
    assert shown("one\ntwo") == "one\ntwo\n"
    text = shown("[bold]", force_terminal=True, color_system="standard")
    assert "[bold]" in text


def judged(verb, folder, *arguments):
    return typed(verb, str(folder), "--ruleset", "1.1.0", *arguments)


def test_values_of_a_log_reach_the_terminal_and_the_tables_as_text(tmp_path):
    folder = tmp_path / "[" / "x]" / "results" / "=HYPERLINK(1)" / "resnet"
    folder.mkdir(parents=True)
    head = [
        (key, {"submission_org": CLEAR, "opt_name": FORGED}.get(key, value), metadata)
        for key, value, metadata in HEAD
    ]
    (folder / "result_0.txt").write_bytes(good_log(head))
    for options in ((), ("--json",)):
        printed = judged("judge", tmp_path, *options)
        assert printed.returncode == 1 and "Traceback" not in printed.stderr
        assert "\x1b" not in printed.stdout and "\nVALID" not in printed.stdout
    table = next(csv.DictReader(io.StringIO(judged("score", tmp_path, "--csv").stdout)))
    assert table["system"] == "'=HYPERLINK(1)"
    assert r"x\]" not in table["submitter"] and table["submitter"] == "x]"


def test_a_cell_of_markdown_is_no_link_no_code_and_no_html():
    assert results_table._escaped("[a](b) `c` <d> | e \\") == r"\[a](b) \`c\` \<d> \| e \\"


def test_a_line_of_a_log_is_read_as_text():
    line = ':::MLLOG {"key": "seed", "value": "\\u001b[2J", "time_ms": 1, "metadata": {"a": "b\\nc"}}'
    event = log.parse_line(line, 1)
    assert event.value == r"\x1b[2J"
    assert event.metadata == {"a": r"b\nc"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")  # noqa: PTH110
def test_a_full_standard_output_is_a_sentence_and_not_a_traceback():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-m", "train_bench", "list"]
        completed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=400)
    assert completed.returncode == 1
    assert completed.stderr == "train-bench: What is printed cannot be written: No space left on device.\n"


def test_without_a_home_folder_the_sentence_says_what_to_set():
    completed = typed("plan", "output='~nobody_by_that_name/x'")
    assert completed.returncode == 2
    assert "needs a home folder" in completed.stderr and "Traceback" not in completed.stderr


@pytest.mark.parametrize("to", ["", "."])
def test_a_page_without_a_name_is_refused(tmp_path, to):
    (tmp_path / "result_0.txt").write_bytes(good_log())
    printed = judged("report", tmp_path, "--to", to)
    assert printed.returncode == 2 and "give the name of a file" in printed.stderr
