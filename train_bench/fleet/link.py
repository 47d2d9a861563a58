"""Connection to one node: a user's command that runs a program there (`ssh NODE`, `srun --nodelist=NODE`), with JSON
lines in both directions. Received data are untrusted and bounded."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain, plain_value
from train_bench.core.excerpt import shorten
from train_bench.core.parent_death import ending_with_parent
from train_bench.errors import LaunchError
from train_bench.launcher import SAFE_PATH

LONGEST_LINE = 2**18
"""Size limit of one answer in bytes; facts take some two thousand."""

WAITING_LINES = 100
"""Lines that a node may be ahead of its reader."""

HEARTBEAT = {"alive": True}

END_SECONDS = 5.0
"""Seconds for a command that connects to end by a signal."""

GRACE_SECONDS = 15.0
"""Seconds for a node to end its processes: a launch is given 10 s."""


class NodeLost(LaunchError):
    """A node that cannot be reached, has ended, or sends no heartbeat."""


class Link:
    """Connection to one node. Every method raises `NodeLost` with the reason once it is lost."""

    def __init__(self, argv: Sequence[str], errors: Path) -> None:
        self._errors = errors
        errors.parent.mkdir(parents=True, exist_ok=True)
        with errors.open("wb") as stderr:
            try:
                self._process = subprocess.Popen(
                    argv,
                    env=os.environ | SAFE_PATH,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                    preexec_fn=ending_with_parent(signal.SIGTERM),
                )
            except OSError as error:
                raise NodeLost(f"{argv[0]} could not be started: {error.strerror}") from error
        self._lines: queue.Queue[bytes | None] = queue.Queue(WAITING_LINES)
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def listen(self) -> None:
        """Start reading from the node; called once all are started, because threads and new processes do not mix."""
        self._reader.start()

    def ask(self, request: Mapping[str, Any], due: str, limit: float) -> Mapping[str, Any]:
        """Send a request and return the answer with key `due`."""
        self.send(request)
        return self.receive(due, limit)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the receiver detects a lost node
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, due: str, limit: float, *, since: float | None = None) -> Mapping[str, Any]:
        """Receive the next answer with key `due`; other lines are heartbeats. `limit` is the heartbeat
        timeout in seconds, from now or `since`."""
        deadline = (time.monotonic() if since is None else since) + limit
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise NodeLost(f"no heartbeat for {limit:g} s") from None
            if line is None:
                raise NodeLost(self._how_it_ended())
            answer = _answer(line)
            if answer is not None and due in answer:
                return answer
            if answer == HEARTBEAT:
                deadline = time.monotonic() + limit

    def close(self, grace: float = GRACE_SECONDS) -> None:
        """End the node's program and its children, then the command that connects. Idempotent."""
        self._closed.set()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        for number in (signal.SIGTERM, signal.SIGKILL):  # srun ends its step by the first one alone
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        if self._reader.ident is not None:
            self._reader.join(GRACE_SECONDS)
        assert self._process.stdout is not None
        if not self._reader.is_alive():  # else something that escaped still has the other end
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while not self._closed.is_set() and (line := self._process.stdout.readline(LONGEST_LINE)):
            self._put(line)
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=1.0)
                return

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its standard output"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its program ended with {how}{stderr_tail(self._errors)}"


class Step(Link):
    """One command that runs the program on several nodes (`srun --nodelist={nodes}`). Every node receives all requests,
    with the name of the node that each is for; answers have that of theirs, and come in pieces shorter than the
    messages that srun forwards whole. A heartbeat behind others that wait is dropped: nobody is read all the time."""

    def __init__(self, argv: Sequence[str], errors: Path, names: Sequence[str]) -> None:
        super().__init__(argv, errors)
        self.links = {name: NodeOfStep(self, name) for name in names}
        self._begun: dict[str, str] = {}

    def how_it_ended(self) -> str:
        """End of the command, for each of its nodes."""
        return self._how_it_ended()

    def _put(self, line: bytes | None) -> None:
        if line is None:
            for link in self.links.values():
                link.deliver(None)
            return
        piece = _answer(line) or {}
        host, part = piece.get("node"), piece.get("part")
        if not isinstance(host, str) or not isinstance(part, str):
            return
        name = host if host in self.links else host.partition(".")[0]
        if name in self.links:
            text = (self._begun.pop(name, "") + part)[:LONGEST_LINE]
            if piece.get("more") is True:
                self._begun[name] = text
            else:
                self.links[name].deliver(text.encode())


class NodeOfStep(Link):
    """Connection to one node of a step."""

    def __init__(self, step: Step, name: str) -> None:
        self._step, self._name = step, name
        self._lines = queue.Queue(WAITING_LINES)

    def deliver(self, line: bytes | None) -> None:
        """Take an answer, or None at the end of the step."""
        if line is None or self._lines.empty() or _answer(line) != HEARTBEAT:
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(line)

    def listen(self) -> None:
        """The step listens for all of its nodes."""

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request to this node."""
        self._step.send({"to": self._name, **request})

    def close(self, grace: float = GRACE_SECONDS) -> None:
        """Ask the node's program to end; the others go on."""
        self.send({"ask": "end"})

    def _how_it_ended(self) -> str:
        return self._step.how_it_ended()


def stderr_tail(path: Path) -> str:
    """`: ` and the last stderr line of a program, if any."""
    try:
        lines = path.read_bytes()[-2000:].decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {plain(shorten(last))}" if last else ""


def _answer(line: bytes) -> Mapping[str, Any] | None:
    """None for anything but a JSON object: a greeting of the machine, half a line, garbage."""
    try:
        answer = files.parse_json(line)
    except (ValueError, RecursionError):
        return None
    return plain_value(answer) if isinstance(answer, dict) else None
