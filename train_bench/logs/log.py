"""MLLOG parser: a result file -> events. One parser for all rounds; the content is untrusted data.

A line is `:::MLLOG {json}`, with an optional prefix before the token. An unreadable line becomes a `Problem`, never an
exception, so that one broken line hides no other. Lines that are malformed and that the official parser reads, such as
one whose metadata is a text, are read and listed as `Remark`.
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
from train_bench.core.event import Event, OtherMetadata

TOKEN = ":::MLLOG "
NO_CONTENT = hashlib.sha256(b"").hexdigest()
LINE_END = re.compile(rb"\r\n|\n|\r")
OLD_TOKEN = re.compile(rb":::MLPv0\.[56]\.\d|:::MLL(?= )")
TYPOGRAPHIC = "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}"
FIELDS = {"key", "value", "time_ms", "metadata"}
DECODER = json.JSONDecoder()

PLAIN = bytes(byte for byte in range(32, 127) if byte != ord("\\")) + b"\r\n"
"""Bytes without JSON escapes: text of nothing else is taken as it is."""

HEAD_BYTES = 2**16
"""Size of the head of a log, whose lines identify it."""

LARGEST_BYTES = 2**28
"""Size limit of one log; far above every published one."""

REFUSED, READ, CRASH = "refused", "read", "crash"
"""Outcomes of the official parser for a line that is no event here."""

LONGEST_TIME = 40
"""Length limit of a time that is written as a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that carries the token and is no event; `line` counts from 1. `official` is what the official parser does
    with it: `refused`, `read`, or `crash`. `text` is the start of the line."""

    line: int
    message: str
    official: str = REFUSED
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Malformed lines of one kind that are read all the same: the first `line`, their `count`."""

    line: int
    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Events of a result file, its unreadable lines, those that are malformed and read, and the digest of its
    content."""

    path: Path
    events: tuple[Event, ...]
    problems: tuple[Problem, ...]
    sha256: str
    remarks: tuple[Remark, ...] = ()


def read(path: Path) -> Log:
    """Read a result file. An unreadable one has no events and a problem on line 0."""
    try:
        content = files.read_bytes(path, largest=LARGEST_BYTES)
    except OSError as error:
        unreadable = Problem(line=0, message=f"the file cannot be read ({error.strerror})")
        return Log(path=path, events=(), problems=(unreadable,), sha256=NO_CONTENT)
    events: list[Event] = []
    problems: list[Problem] = []
    remarks: dict[str, list[int]] = {}
    token = TOKEN.encode()
    is_plain = not content.translate(None, PLAIN)
    for number, raw in enumerate(_lines(content), start=1):
        if token not in raw:
            continue
        parsed = parse_line(raw.decode("utf-8", errors="replace"), number, is_plain=is_plain, remarks=remarks)
        if isinstance(parsed, Event):
            events.append(parsed)
        elif parsed is not None:
            problems.append(parsed)
    if not events and not problems and (foreign := foreign_format(content)):
        problems.append(Problem(line=0, message=foreign, official=READ))
    return Log(
        path=path,
        events=tuple(events),
        problems=tuple(problems),
        sha256=hashlib.sha256(content).hexdigest(),
        remarks=tuple(Remark(line=at[0], message=text, count=len(at)) for text, at in remarks.items()),
    )


def foreign_format(content: bytes) -> str | None:
    """Reason for which a file without any event is unreadable, if it is in a known format of another kind."""
    head = content[:HEAD_BYTES]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or TOKEN.encode("utf-16-le") in head:
        return "the file is in UTF-16, which no checker reads; convert it with `iconv -f UTF-16 -t UTF-8`"
    old = OLD_TOKEN.search(head)
    if old is not None:
        return f"the lines begin with {old[0].decode()}, the format of a round before 0.7, which is not read"
    return None


def _lines(content: bytes) -> list[bytes]:
    return LINE_END.split(content) if b"\r" in content else content.split(b"\n")


def names(path: Path, line: int, key: str) -> bool:
    """True if a line of a file has the name of a key, though it may be no event."""
    lines = _lines(files.read_bytes(path, largest=LARGEST_BYTES))
    return 0 < line <= len(lines) and f'"{key}"'.encode() in lines[line - 1]


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


def parse_line(
    text: str, line: int, *, is_plain: bool = False, remarks: dict[str, list[int]] | None = None
) -> Event | Problem | None:
    """Parse one line: an event, a problem, or None for a line without the token. `is_plain` states that it has only
    `PLAIN` bytes. `remarks` collects the numbers of malformed lines that are read."""
    before, token, rest = text.rpartition(TOKEN)
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
        end = " (it has typographic quotes)" if any(quote in rest for quote in TYPOGRAPHIC) else end
        return Problem(line=line, message=f"not JSON{end}: {_shortened(rest)}", text=rest[:HEAD_BYTES])
    if not is_plain and ("\\" in rest or not rest.isprintable()):
        fields = plain_value(fields)
    reason, official = _malformed(fields)
    if reason:
        return Problem(line=line, message=f"{reason}: {_shortened(rest)}", official=official)
    if TOKEN in before:
        _remark(remarks, "several events on one line, of which the last is read", line)
    time_ms, metadata = fields["time_ms"], fields["metadata"]
    if isinstance(time_ms, str):
        time_ms = float(time_ms)
        _remark(remarks, "time_ms is a text", line)
    if not isinstance(metadata, dict):
        metadata = OtherMetadata(metadata)
        _remark(remarks, "metadata is not an object", line)
    event_type = str(fields.get("event_type"))
    return Event(fields["key"], fields["value"], int(time_ms), event_type, metadata, line)


def _remark(remarks: dict[str, list[int]] | None, message: str, line: int) -> None:
    if remarks is not None:
        remarks.setdefault(message, []).append(line)


def _malformed(fields: Any) -> tuple[str | None, str]:
    """Reason for which an object is no event, and what the official parser does with it."""
    if not isinstance(fields, dict):
        return "not an object", REFUSED if fields is None else CRASH
    try:
        key, time_ms, _, _ = fields["key"], fields["time_ms"], fields["metadata"], fields["value"]
    except KeyError:
        instead = " (it has time_s)" if "time_s" in fields else ""
        return f"without {', '.join(sorted(FIELDS - fields.keys()))}{instead}", CRASH
    if type(time_ms) is int and type(key) is str and -1e18 < time_ms < 1e18:
        return None, READ
    official = _official_time(time_ms)
    if isinstance(time_ms, bool) or official != READ or not -1e18 < float(time_ms) < 1e18:
        return "time_ms is not a time", official
    return (None if isinstance(key, str) else "key is not a text"), READ


def _official_time(time_ms: Any) -> str:
    """What the official parser does with a time: it takes whatever `float` takes."""
    if isinstance(time_ms, str) and len(time_ms) > LONGEST_TIME:
        return REFUSED
    try:
        float(time_ms)
    except ValueError:
        return REFUSED
    except (TypeError, OverflowError):
        return CRASH
    return READ


def _shortened(text: str) -> str:
    text = plain(text[:81])
    return text if len(text) <= 80 else text[:77] + "..."
