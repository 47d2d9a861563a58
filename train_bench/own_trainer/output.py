"""Program output in the log: from round 6.1 on a result file contains the whole output of a run."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import IO

from train_bench.own_trainer.program_log import TOKEN

FIRST_ROUND = (6, 1, 0)
"""Of the training rounds that require the output."""

LARGEST_BYTES = 100 * 2**20
"""Of a result file."""

HELD_BYTES = 2**20
"""The last so many of what a program prints before its log begins."""

LINE_BYTES = 2**16


class OutputInLog:
    """Reads the output of a program and writes it, line by line, to this process's own standard output and between the
    lines of the log, once the program has begun the log. Lines of mllog are left out of the log, where they would count
    twice."""

    def __init__(self, printed: IO[bytes] | None, log: Path) -> None:
        assert printed is not None
        self._printed = printed
        self._path = log
        self._log: int | None = None
        self._held = b""
        self._full = False
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    @staticmethod
    def due(ruleset: str) -> bool:
        """True if a round requires the output."""
        suite, _, number = ruleset.rpartition("-")
        return suite == "training" and tuple(map(int, number.split("."))) >= FIRST_ROUND

    def close(self) -> None:
        """Drain the output after the program has ended."""
        self._thread.join()
        if self._log is not None:
            os.close(self._log)

    def _copy(self) -> None:
        while line := self._printed.readline(LINE_BYTES):
            os.write(1, line)
            if TOKEN not in line:
                self._add(line if line.endswith(b"\n") else line + b"\n")
        self._add(b"")

    def _add(self, lines: bytes) -> None:
        if self._full:
            return
        if self._log is None and self._path.exists():
            self._log = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        lines = self._held + lines
        if self._log is None:
            self._held = lines[-HELD_BYTES:]
            return
        if os.fstat(self._log).st_size + len(lines) > LARGEST_BYTES:
            lines = b"train_bench: the rest of what was printed is in ranks/; this file has 100 MiB.\n"
            self._full = True
        os.write(self._log, lines)
        self._held = b""
