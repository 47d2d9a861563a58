"""Commands as a user types them, in a process of their own or in that of the tests, and what comes of them."""

import contextlib
import io
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from train_bench.cli import program
from train_bench.cli.exit_codes import guarded


def train_bench(*arguments, cwd=None, timeout=400):
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "train_bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)


def typed(verb, *arguments):
    """What a command answers, carried out in this process, which takes a second less than one of its own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", sys.argv)  # where Hydra is told its words
        try:
            code = guarded(lambda: program.command(verb)(list(arguments)))
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess([verb, *arguments], code, out.getvalue(), err.getvalue())


def processes():
    """Command lines of all processes by their numbers, as `ps` shows them."""
    lines = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            lines[int(folder.name)] = b" ".join(words).decode(errors="replace")
    return lines


def in_the_foreground():
    """`preexec_fn` of a process that is to be ended by Ctrl-C: jobs that a shell starts in the background ignore
    SIGINT, and so would theirs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(condition, seconds=300):
    """Wait until `condition()` is true; fail if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
