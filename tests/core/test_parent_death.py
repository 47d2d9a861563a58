"""A program ends with the process that started it, and needs nothing but one call of the kernel for that."""

import ctypes
import os
import select
import signal
import subprocess
import sys

from train_bench.core.parent_death import ending_with_parent

STARTS = """
import signal, subprocess, sys
from train_bench.core.parent_death import ending_with_parent
child = subprocess.Popen(["sleep", "300"], preexec_fn=ending_with_parent(signal.SIGTERM), stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_program_ends_with_the_process_that_started_it():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        gone = os.pidfd_open(child)
        parent.kill()
    assert select.select([gone], [], [], 60)[0], "it did not end"
    os.close(gone)


def test_a_new_process_loads_no_library(monkeypatch):
    """Another thread of its parent may have held the loader's lock."""
    monkeypatch.setattr(ctypes, "CDLL", None)
    monkeypatch.setattr(ctypes, "PyDLL", None)
    assert subprocess.run(["true"], preexec_fn=ending_with_parent(signal.SIGKILL)).returncode == 0
