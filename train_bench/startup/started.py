"""A started process and its requests, with the time at which each answer arrived."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from train_bench.core import files
from train_bench.errors import LaunchError
from train_bench.launcher import SAFE_PATH

TAIL_CHARACTERS = 2000
"""Characters of standard error that the message about a dead process has."""

MODULE = "train_bench.startup.process"


class StartedProcess:
    """A process of `startup/process.py`.

    pid      its number
    first    reply to the first request, with `times` in nanoseconds from `started` (before exec) to `answered` (the
             reply arrived here), and the seconds that its threads `waited` for a processor (None: unknown)
    """

    def __init__(self, process: subprocess.Popen[str], stderr: IO[str], started: int) -> None:
        self._process, self._stderr = process, stderr
        self.pid = process.pid
        self._waited: float | None = 0.0  # until the last reply
        self.first = self._reply(started)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a further request; its `times` begin when it was sent. Raises `LaunchError` if the process
        dies."""
        assert self._process.stdin is not None
        started = time.monotonic_ns()
        with contextlib.suppress(BrokenPipeError):  # it died, and the missing reply says so
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._reply(started)

    def _reply(self, started: int) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answered = time.monotonic_ns()
        reply: dict[str, Any] = json.loads(line) if line.endswith("\n") else {"error": self._death()}
        if "error" in reply:
            raise LaunchError(reply["error"])
        reply["times"] = {"started": started, **reply["times"], "answered": answered}
        waited = _waited_seconds(self.pid)
        if waited is None or self._waited is None:
            reply["waited"] = None
        else:
            reply["waited"] = max(0.0, waited - self._waited)  # less than before: threads have ended
        self._waited = waited
        return reply

    def _death(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGSEGV:
            return (
                "The process ended by SIGSEGV: the model writes into its weights, which are mapped read-only. Leave "
                "out the levels that map them (--levels L0,L1)."
            )
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._stderr.seek(0)
        said = " ".join(self._stderr.read()[-TAIL_CHARACTERS:].split())
        return f"A process whose start is measured died by {how}: {said or 'it printed nothing'}"


def _waited_seconds(pid: int) -> float | None:
    """Seconds that the threads of a process were runnable without a processor; None: unknown."""
    try:
        counters = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        return None
    return sum(int(fields[1]) for fields in counters) / 1e9 if counters else None


@contextlib.contextmanager
def start(described: Mapping[str, Any], folder: Path) -> Iterator[StartedProcess]:
    """Start a process of a description in `folder`, and wait for its first reply; it ends with the context. Raises
    `LaunchError` if it dies or refuses."""
    description = folder / "description.json"
    files.write_json(description, described)
    argv = (sys.executable, "-m", MODULE, str(description))
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        started = time.monotonic_ns()
        try:
            process = subprocess.Popen(
                argv,
                env=os.environ | SAFE_PATH,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # so that Ctrl-C reaches it once, through this process
            )
        except OSError as error:
            raise LaunchError(f"{argv[0]} could not be started: {error.strerror}.") from error
        with process:
            try:
                yield StartedProcess(process, stderr, started)
            finally:
                process.kill()  # it has answered, and holds nothing
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # a request that it did not read
                    process.stdin.close()
