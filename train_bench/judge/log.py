"""A result file -> events. One parser for all rounds; whatever a file holds, it is data.

A line is `:::MLLOG {json}`, text before the token is somebody's prefix. What cannot be read becomes a
`Problem`, never an exception, so that one broken line hides no other.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.errors import LogError
from train_bench.event import Event

TOKEN = ":::MLLOG "
LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that carries the token and is no event; `line` counts from 1."""

    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a result file says, what of it cannot be read, and the digest of its content."""

    path: Path
    events: tuple[Event, ...]
    problems: tuple[Problem, ...]
    sha256: str


def read(path: Path) -> Log:
    """Read a result file. Raises `LogError` only if there is no readable file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}.") from error
    events: list[Event] = []
    problems: list[Problem] = []
    for number, text in enumerate(LINE_END.split(content.decode("utf-8", errors="replace")), start=1):
        found = parse_line(text, number)
        if isinstance(found, Event):
            events.append(found)
        elif found is not None:
            problems.append(found)
    return Log(
        path=path,
        events=tuple(events),
        problems=tuple(problems),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def parse_line(text: str, line: int) -> Event | Problem | None:
    """One line of a result: an event, a problem, or None for a line without the token."""
    _, token, rest = text.rpartition(TOKEN)
    if not token:
        return None
    try:
        fields = json.loads(rest)
    except (ValueError, RecursionError):
        end = "" if rest.rstrip().endswith("}") else " (the line ends in the middle)"
        return Problem(line=line, message=f"not JSON{end}: {_shortened(rest)}")
    reason = _malformed(fields)
    if reason:
        return Problem(line=line, message=f"{reason}: {_shortened(rest)}")
    return Event(
        key=fields["key"],
        value=fields["value"],
        time_ms=int(fields["time_ms"]),
        event_type=str(fields.get("event_type")),
        metadata=fields["metadata"],
        line=line,
    )


def _malformed(fields: Any) -> str | None:
    if not isinstance(fields, dict):
        return "not an object"
    missing = [name for name in ("key", "value", "time_ms", "metadata") if name not in fields]
    if missing:
        return f"without {', '.join(missing)}"
    time_ms = fields["time_ms"]
    if isinstance(time_ms, bool) or not isinstance(time_ms, (int, float)) or not abs(time_ms) < 1e18:
        return "time_ms is not a time"
    if not isinstance(fields["key"], str):
        return "key is not a text"
    return None if isinstance(fields["metadata"], dict) else "metadata is not an object"


def _shortened(text: str) -> str:
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 80 else text[:77] + "..."
