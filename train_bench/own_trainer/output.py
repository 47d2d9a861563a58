"""Program output in the log: from round 6.1 on a result file contains the whole output of a run."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import IO, BinaryIO

from train_bench.core import files
from train_bench.own_trainer.program_log import TOKEN

FIRST_ROUND = (6, 1, 0)
"""First of the training rounds that require the output."""

LARGEST_BYTES = 100 * 2**20
"""Bytes of a result file."""

HELD_BYTES = 2**20
"""The last so many of what a program prints before its log begins."""

LINE_BYTES = 2**16


class OutputInLog:
    """Reads the output of a program and writes it, line by line, to this process's own standard output and between the
    lines of the log, once the program has begun the log. Lines of mllog are left out of the log, where they would count
    twice. The output is read to its end even where neither can be written, so that the program never waits."""

    def __init__(self, printed: IO[bytes] | None, log: Path) -> None:
        assert printed is not None
        self._printed = printed
        self._path = log
        self._log: BinaryIO | None = None
        self._opened = contextlib.ExitStack()
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
        self._opened.close()

    def _copy(self) -> None:
        while line := self._printed.readline(LINE_BYTES):
            with contextlib.suppress(OSError):
                os.write(1, line)
            if TOKEN not in line:
                self._try_to_add(line if line.endswith(b"\n") else line + b"\n")
        self._try_to_add(b"")

    def _try_to_add(self, lines: bytes) -> None:
        """Add lines; the first failure (a full disk; a log that is a pipe, a folder or a link) is the last attempt."""
        try:
            self._add(lines)
        except OSError:
            self._full = True

    def _add(self, lines: bytes) -> None:
        if self._full:
            return
        if self._log is None and self._path.exists():
            self._log = self._opened.enter_context(files.opened_to_append(self._path))
        lines = self._held + lines
        if self._log is None:
            self._held = lines[-HELD_BYTES:]
            return
        if os.fstat(self._log.fileno()).st_size + len(lines) > LARGEST_BYTES:
            lines = b"train_bench: the rest of what was printed is in ranks/; this file has 100 MiB.\n"
            self._full = True
        os.write(self._log.fileno(), lines)  # at once, so that the program writes its lines before or after
        self._held = b""
