"""Mirror of a campaign's folder among pods that share none. Host 0 serves what the others need by HTTP, and they send
what they write. Each message is signed with the token of the campaign, once: one that is sent again is refused."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from train_bench.core import files, sent_files
from train_bench.errors import RequestError, WriteError

FROM_FIRST = (
    "hosts.json",
    "result_*.txt",
    "result_*.txt.part",
    "ranks/run_*/heartbeat",
    "ranks/run_*/clocks.json",
)
"""Files of host 0 that the others read: the run that it has announced, its log, and whether it goes on."""

WHILE_RUNNING = (
    *("ranks/run_*/arrived/*", "ranks/run_*/rank_*.json", "ranks/run_*/collectives_*.json"),
    *("ranks/run_*/hosts/*.json", "power/*/*.txt"),
)
WHEN_LEAVING = (*WHILE_RUNNING, "ranks/run_*/launcher_*.stderr")
"""Files of the others that host 0 reads: their ranks, how their part of a run has ended, and their energy; at the end,
what their launching processes have printed, which grows as a run goes on."""

LATE = ("ranks/run_*/launcher_*.stderr", "power/*/*.txt")
"""Files of the others that may arrive when the campaign of host 0 has ended, and has sent its lines."""

LARGEST_MESSAGE = 2 * sent_files.LARGEST_BYTES
LENGTH = re.compile(r"\d{1,10}", re.ASCII)
SIGNATURE_CHARACTERS = 64
"""What a stranger sends is read up to this size, and if it can be signed."""

PERIOD_SECONDS = 0.25
ANSWER_SECONDS = 10.0
LEAVE_SECONDS = 20.0
"""Time in which the others leave, once host 0 has ended the campaign."""


class FirstHost:
    """Serves the folder of host 0, until the `others` have left; what came last from them is printed as lines then."""

    def __init__(self, folder: Path, token: bytes, port: int, *, others: int) -> None:
        self._folder, self._token, self._others = folder, token, others
        self._last: dict[int, int] = {}
        self._left: set[int] = set()
        try:
            self._server = ThreadingHTTPServer(("", port), self._handler())
        except OSError as error:
            raise RequestError(
                f"Port {port} of host 0 cannot be opened ({error.strerror}); it is launcher.master_port and 1. Choose "
                "another launcher.master_port."
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def port(self) -> int:
        """Port on which it listens."""
        return int(self._server.server_port)

    def __enter__(self) -> FirstHost:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, at: TracebackType | None) -> None:
        deadline = time.monotonic() + LEAVE_SECONDS
        with contextlib.suppress(KeyboardInterrupt):  # nothing is left to be done but to wait
            while len(self._left) < self._others and time.monotonic() < deadline:
                time.sleep(PERIOD_SECONDS)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for name, _, content in sent_files.changed(self._folder, LATE, {}):
            for line in sent_files.lines_of(name, content):
                sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def answer(self, body: bytes, signature: str) -> bytes | None:
        """Answer to a request of another host; None to one that is not signed, or not new."""
        if not hmac.compare_digest(signature.encode(), _signature(self._token, b"request", body).encode()):
            return None
        asked = json.loads(body)
        host = int(asked["host"])
        if asked["at"] <= self._last.get(host, 0):
            return None
        self._last[host] = asked["at"]
        _write(self._folder, asked["files"], WHEN_LEAVING)
        if asked["leaves"]:
            self._left.add(host)
        known = {name: tuple(version) for name, version in asked["known"].items()}
        new = sent_files.changed(self._folder, FROM_FIRST, known)
        return json.dumps({name: (_text(content), version) for name, version, content in new}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        first = self

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER_SECONDS

            def do_POST(self) -> None:
                length, signature = self.headers.get("Content-Length", ""), self.headers.get("Signature", "")
                if not LENGTH.fullmatch(length) or int(length) > LARGEST_MESSAGE:
                    self.send_error(413)
                    return
                if len(signature) != SIGNATURE_CHARACTERS:
                    self.send_error(403)
                    return
                try:
                    answer = first.answer(self.rfile.read(int(length)), signature)
                except OSError:  # no space, or no whole message: it comes again
                    self.send_error(503)
                    return
                self.send_response(403 if answer is None else 200)
                self.send_header("Signature", _signature(first._token, signature.encode(), answer or b""))
                self.end_headers()
                self.wfile.write(answer or b"")

            def log_message(self, *_: object) -> None:
                """Nothing: the log of a pod is for the campaign."""

        return Handler


class OtherHost:
    """Keeps the folder of another host like that of host 0. Its plan is there once host 0 has answered."""

    def __init__(self, folder: Path, token: bytes, address: tuple[str, int], host: int, plan: Path) -> None:
        self._folder, self._token, self._address = folder, token, address
        self._host, self._plan = host, plan
        self._known: dict[str, Any] = {}
        self._sent: dict[str, sent_files.Version] = {}
        self._asked_at = 0
        self._answered = self._gone = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> OtherHost:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        deadline = time.monotonic() + LEAVE_SECONDS
        while not self._exchange(leaves=True) and not self._gone and time.monotonic() < deadline:
            time.sleep(PERIOD_SECONDS)

    def _follow(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            self._exchange()

    def _exchange(self, *, leaves: bool = False) -> bool:
        """Send what is new and write what has come. False if host 0 does not answer, there is no space here, or
        there is more to be sent: all of it is for the next time."""
        new, rest = self._new(WHEN_LEAVING if leaves else WHILE_RUNNING)
        self._asked_at = max(time.time_ns(), self._asked_at + 1)  # also of a clock that is set back
        asked = {
            "host": self._host,
            "at": self._asked_at,
            "leaves": leaves and not rest,
            "known": self._known,
            "files": {name: (_text(content), version) for name, version, content in new},
        }
        body = json.dumps(asked).encode()
        signature = _signature(self._token, b"request", body)
        connection = http.client.HTTPConnection(*self._address, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", "/", body, {"Signature": signature})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            # It listens before anything else, until all others have left or it is ended.
            # A busy server of names does not know of one for a moment.
            no_name = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
            self._gone = self._answered and (no_name or isinstance(error, ConnectionRefusedError))
            return False
        finally:
            connection.close()
        self._gone = False
        signed = _signature(self._token, signature.encode(), answer)
        if response.status != 200 or not hmac.compare_digest(response.getheader("Signature", ""), signed):
            return False
        self._answered = True
        self._sent |= {name: version for name, version, _ in new}
        content = json.loads(answer)
        try:
            _write(self._folder, content, FROM_FIRST)
            if not (self._folder / "plan.json").exists():
                files.write_json(self._folder / "plan.json", files.read_json(self._plan))
        except (OSError, WriteError):
            return False
        self._known |= {name: version for name, (_, version) in content.items()}
        return not rest

    def _new(self, patterns: Sequence[str]) -> tuple[list[tuple[str, sent_files.Version, bytes]], bool]:
        """New files of a message, and whether others are left for the next."""
        new: list[tuple[str, sent_files.Version, bytes]] = []
        size = 0
        for one in sent_files.changed(self._folder, patterns, self._sent):
            size += len(one[2])
            if new and size > sent_files.LARGEST_BYTES:
                return new, True
            new.append(one)
        return new, False


def _signature(token: bytes, purpose: bytes, content: bytes) -> str:
    return hmac.new(token, purpose + b"\n" + content, "sha256").hexdigest()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _write(folder: Path, content: Mapping[str, Any], patterns: tuple[str, ...]) -> None:
    """Write files with names of these patterns, each whole or not at all: a part of one is in the folder itself, where
    nobody counts it."""
    for name, (text, _) in content.items():
        if sent_files.matches(name, patterns):
            part, path = folder / f"mirror_{secrets.token_hex(6)}.part", folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                part.write_bytes(base64.b64decode(text, validate=True))
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
