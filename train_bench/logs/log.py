"""MLLOG parser: a result file -> events. One parser for all rounds; the content is untrusted data.

A line is `:::MLLOG {json}`, with an optional prefix before the token. An unreadable line becomes a `Problem`, never an
exception, so that one broken line hides no other.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain, plain_value
from train_bench.core.event import Event

TOKEN = ":::MLLOG "
NO_CONTENT = hashlib.sha256(b"").hexdigest()
LINE_END = re.compile(rb"\r\n|\n|\r")
FIELDS = {"key", "value", "time_ms", "metadata"}
DECODER = json.JSONDecoder()

PLAIN = bytes(byte for byte in range(32, 127) if byte != ord("\\")) + b"\r\n"
"""Bytes without JSON escapes: text of nothing else is taken as it is."""

HEAD_BYTES = 2**16
"""Size of the head of a log, whose lines identify it."""

LARGEST_BYTES = 2**28
"""Size limit of one log; far above every published one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that carries the token and is no event; `line` counts from 1."""

    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Events of a result file, its unreadable lines, and the digest of its content."""

    path: Path
    events: tuple[Event, ...]
    problems: tuple[Problem, ...]
    sha256: str


def read(path: Path) -> Log:
    """Read a result file. An unreadable one has no events and a problem on line 0."""
    try:
        content = files.read_bytes(path, largest=LARGEST_BYTES)
    except OSError as error:
        unreadable = Problem(line=0, message=f"the file cannot be read ({error.strerror})")
        return Log(path=path, events=(), problems=(unreadable,), sha256=NO_CONTENT)
    events: list[Event] = []
    problems: list[Problem] = []
    token = TOKEN.encode()
    is_plain = not content.translate(None, PLAIN)
    for number, raw in enumerate(_lines(content), start=1):
        if token not in raw:
            continue
        parsed = parse_line(raw.decode("utf-8", errors="replace"), number, is_plain=is_plain)
        if isinstance(parsed, Event):
            events.append(parsed)
        elif parsed is not None:
            problems.append(parsed)
    return Log(
        path=path,
        events=tuple(events),
        problems=tuple(problems),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _lines(content: bytes) -> list[bytes]:
    return LINE_END.split(content) if b"\r" in content else content.split(b"\n")


def first_value(path: Path, key: str) -> Any:
    """Value of the first line of `key`, found without reading the others; None if there is none."""
    try:
        with files.opened(path) as file:
            head = file.read(HEAD_BYTES)
            event = _first(head, key)
            if event is None and len(head) == HEAD_BYTES:
                event = _first(files.read_bytes(path, largest=LARGEST_BYTES), key)
    except OSError:
        return None
    return None if event is None else event.value


def _first(content: bytes, key: str) -> Event | None:
    quoted = f'"{key}"'.encode()
    start = 0
    while (at := content.find(quoted, start)) >= 0:
        start = max(start, content.rfind(b"\n", start, at) + 1, content.rfind(b"\r", start, at) + 1)
        end = LINE_END.search(content, at)
        line = content[start : end.start() if end else None]
        event = parse_line(line.decode("utf-8", errors="replace"), 0)
        if isinstance(event, Event) and event.key == key:
            return event
        start += len(line)
    return None


def parse_line(text: str, line: int, *, is_plain: bool = False) -> Event | Problem | None:
    """Parse one line: an event, a problem, or None for a line without the token. `is_plain` states that it has only
    `PLAIN` bytes."""
    _, token, rest = text.rpartition(TOKEN)
    if not token:
        return None
    rest = rest.strip()
    try:
        fields, length = DECODER.raw_decode(rest)
        if length != len(rest):
            raise ValueError("there is text after the object")
        if len(rest) > 2 * files.DEEPEST and rest.count("{") + rest.count("[") > files.DEEPEST:
            files.refuse_depth(fields)
    except (ValueError, RecursionError):
        end = "" if rest.endswith("}") else " (the line ends in the middle)"
        return Problem(line=line, message=f"not JSON{end}: {_shortened(rest)}")
    if not is_plain and ("\\" in rest or not rest.isprintable()):
        fields = plain_value(fields)
    reason = _malformed(fields)
    if reason:
        return Problem(line=line, message=f"{reason}: {_shortened(rest)}")
    event_type = str(fields.get("event_type"))
    return Event(fields["key"], fields["value"], int(fields["time_ms"]), event_type, fields["metadata"], line)


def _malformed(fields: Any) -> str | None:
    if not isinstance(fields, dict):
        return "not an object"
    try:
        key, time_ms, metadata, _ = fields["key"], fields["time_ms"], fields["metadata"], fields["value"]
    except KeyError:
        return f"without {', '.join(sorted(FIELDS - fields.keys()))}"
    if isinstance(time_ms, bool) or not isinstance(time_ms, (int, float)) or not -1e18 < time_ms < 1e18:
        return "time_ms is not a time"
    if not isinstance(key, str):
        return "key is not a text"
    return None if isinstance(metadata, dict) else "metadata is not an object"


def _shortened(text: str) -> str:
    text = plain(text[:81])
    return text if len(text) <= 80 else text[:77] + "..."
