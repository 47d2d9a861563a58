"""Ends of the program: a sentence for people on a terminal, and nothing for those who have stopped reading."""

import errno
import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

from tests.fake_campaigns import begun  # noqa: F401
from tests.needs import ROOT
from train_bench.cli import exit_codes
from train_bench.cli.exit_codes import OUTPUT_CLOSED
from train_bench.errors import WriteError


def unread(*command):
    """Exit code and standard error of a command whose standard output nobody reads."""
    ours, theirs = os.pipe()
    os.close(ours)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environ)
    os.close(theirs)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["judge", "--help"], ["--help"]])
def test_a_closed_output_ends_the_program_quietly_as_sigpipe_does(words):
    assert unread(sys.executable, "-m", "train_bench", *words) == (OUTPUT_CLOSED, "")
    assert OUTPUT_CLOSED == 141


CAMPAIGN = """
import sys
from pathlib import Path
from tests.fake_campaigns import FakeLauncher, open_plan, run_all
from train_bench.cli import program
from train_bench.observers.terminal import Terminal
from train_bench.report.console import make_console

plan = open_plan(Path({folder!r}))
program.command = lambda verb: lambda words: run_all(
    plan, FakeLauncher(), Terminal(make_console()), retry_failed=False
)
sys.argv = ["train-bench", "run"]
program.main()
"""


def test_a_campaign_whose_output_is_closed_is_interrupted_and_can_be_resumed(begun):  # noqa: F811
    folder = begun.jobs[0].folder
    code, said = unread(sys.executable, "-c", CAMPAIGN.format(folder=str(folder)))
    assert code == 1
    assert said == (
        "train-bench: Interrupted; 1 of 5 runs are finished and stay. Continue with: train-bench run "
        f"resume={folder}\n"
    )


def shown(columns, *words):
    """Lines of standard error on a terminal of so many columns."""
    person, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "train_bench", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    printed = os.read(person, 65536).decode()
    os.close(person)
    return printed.splitlines()


def test_on_a_terminal_an_error_is_wrapped_at_words_and_its_path_can_be_copied():
    path = "/somewhere/a_folder_with/a-name-that-is-longer-than/the_terminal"
    lines = shown(50, "judge", path)
    assert len(lines) > 1
    assert path in (word for line in lines for word in line.rstrip(".").split())
    assert [line for line in lines if len(line) > 50 and path not in line] == []
    [line] = subprocess.run(
        [sys.executable, "-m", "train_bench", "judge", path], capture_output=True, text=True
    ).stderr.splitlines()
    assert line == " ".join(lines)


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOLCK, "keeps no locks"),
        (errno.ENOSPC, "Free some space"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "does not answer"),
        (errno.EPERM, "The operating system refuses"),
    ],
)
def test_an_error_of_the_system_without_a_file_is_not_blamed_on_the_output(number, step, capfd):
    def refused():
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exit_codes, "_forget_output", lambda: None)
        assert exit_codes.guarded(refused) == WriteError.exit_code
    said = " ".join(capfd.readouterr().err.split())
    assert "What is printed" not in said and os.strerror(number) in said and step in said
