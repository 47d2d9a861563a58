"""MLLOG parser: a result file -> events. One parser for all rounds; the content is untrusted data.

A line is `:::MLLOG {json}`, with an optional prefix before the token. An unreadable line becomes a `Problem`, never an
exception, so that one broken line hides no other. Lines that are malformed and that the official parser reads, such as
one whose metadata is a text, are read and listed as `Remark`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from train_bench.core import files
from train_bench.core.escape import plain, plain_value
from train_bench.core.event import Event, Events, OtherMetadata, scan

TOKEN = ":::MLLOG "
NO_CONTENT = hashlib.sha256(b"").hexdigest()
LINE_END = re.compile("\r\n|\n|\r")
Remarks = dict[str, tuple[int, int]]
"""First line and number of lines of each kind of malformed line."""
OLD_TOKEN = re.compile(rb":::MLPv0\.[56]\.\d|:::MLL(?= )")
TYPOGRAPHIC = "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}"
ESCAPED = " (its quotes are escaped: the line is in the JSON of a container; take it out, for example by `jq -r .log`)"
NANOSECONDS = " in milliseconds (it may be one in nanoseconds)"
NANOSECONDS_SINCE_2001 = range(10**18, 10**19)
FIELDS = {"key", "value", "time_ms", "metadata"}
DECODER = json.JSONDecoder()

HEAD = re.compile(
    r':::MLLOG \{(?:"namespace": "[^":]*", )?"time_ms": (0|[1-9]\d{0,16}), (?:"event_type": "([^":]*)", )?'
    r'"key": "([^":]*)", "value": '
)
"""Start of a line as mlperf-logging writes it."""
METADATA = ', "metadata": '

BLOCK_BYTES = 2**20
"""Size of the parts in which a log is read."""

MOST_KEPT = 2**13
"""Number of lists and objects of a log that are kept as they are; further ones are kept as text."""

PLAIN = bytes(byte for byte in range(32, 127) if byte != ord("\\")) + b"\r\n"
"""Bytes without JSON escapes: text of nothing else is taken as it is."""

HEAD_BYTES = 2**16
"""Size of the head of a log, whose lines identify it."""

UNREAD_ENCODINGS = {
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
}
"""Encodings that no checker reads, with their byte order marks; those of 32 bits first, whose marks begin alike."""

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
    events: Events
    problems: tuple[Problem, ...]
    sha256: str
    remarks: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.events, Events):
            object.__setattr__(self, "events", Events(self.events))


def read(path: Path) -> Log:
    """Read a result file. An unreadable one has no events and a problem on line 0."""
    reading = _Reading()
    digest = hashlib.sha256()
    head = b""
    try:
        with files.opened(path) as file:
            for block in _blocks(file):
                digest.update(block)
                head += block[: HEAD_BYTES - len(head)]
                reading.take(block)
    except OSError as error:
        unreadable = Problem(line=0, message=f"the file cannot be read ({error.strerror})")
        return Log(path=path, events=Events(), problems=(unreadable,), sha256=NO_CONTENT)
    problems = reading.problems
    if not reading.events and not problems and (foreign := foreign_format(head)):
        problems.append(Problem(line=0, message=foreign, official=READ))
    return Log(
        path=path,
        events=reading.events,
        problems=tuple(problems),
        sha256=digest.hexdigest(),
        remarks=tuple(
            Remark(line=line, message=text, count=count) for text, (line, count) in reading.remarks.items()
        ),
    )


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Content of a file as it is when it is opened, in parts that end with a line."""
    left = os.fstat(file.fileno()).st_size
    if left > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than the {LARGEST_BYTES} bytes that are read")
    rest, size = b"", HEAD_BYTES
    while left > 0 and (more := file.read(min(left, size))):
        left -= len(more)
        rest += more
        end = (
            rest.rfind(b"\n") + 1 or rest.rfind(b"\r", 0, -1) + 1
        )  # "\r" may be the first half of a line end
        if end:
            yield rest[:end]
            rest = rest[end:]
        size = max(BLOCK_BYTES, len(rest))
    if rest:
        yield rest


class _Reading:
    """Events of a log, whose parts are read one after the other."""

    def __init__(self) -> None:
        self.events = Events()
        self.problems: list[Problem] = []
        self.remarks: Remarks = {}
        self._above = 0
        self._texts: dict[str, str] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        self._whole = 0

    def take(self, block: bytes) -> None:
        """Read a part, whose lines are whole."""
        plain_block = not block.translate(None, PLAIN)
        lines = _lines(block.decode("utf-8", errors="replace"))
        for number, text in enumerate(lines, start=self._above + 1):
            at = text.find(TOKEN)
            if at < 0:
                continue
            is_plain = plain_block or (text.isascii() and text.isprintable() and "\\" not in text)
            if not (is_plain and self._take_usual(text, at, number)):
                self._take_any(text, number, is_plain)
        self._above += len(lines) - 1

    def _take_usual(self, text: str, at: int, line: int) -> bool:
        """Take a line of plain characters that is as mlperf-logging writes it; False for any other."""
        head = HEAD.match(text, at)
        if head is None or text.find(TOKEN, at + 1) >= 0 or _may_be_deep(text):
            return False
        begin = head.end()
        try:
            value, end = scan(text, begin)
            if not text.startswith(METADATA, end):
                return False
            rest = text[end + len(METADATA) :]
            metadata: Any = self._shared.get(rest)
            if metadata is None:
                metadata, length = scan(rest, 0)
                if type(metadata) is not dict or rest[length:] != "}":
                    return False
                if len(self._shared) < MOST_KEPT:
                    self._shared[rest] = metadata
                else:
                    metadata = rest[:-1].encode()
        except (ValueError, RecursionError, StopIteration):
            return False
        if type(value) not in (float, int):
            value = self._kept(value, text[begin:end])
        time_ms, event_type, key = head.groups(str(None))
        self.events.add(self._text(key), value, int(time_ms), self._text(event_type), metadata, line)
        return True

    def _take_any(self, text: str, line: int, is_plain: bool) -> None:
        parsed = parse_line(text, line, is_plain=is_plain, remarks=self.remarks)
        if isinstance(parsed, Problem):
            self.problems.append(parsed)
        elif parsed is not None:
            key, value, time_ms, event_type, metadata, line = parsed
            self.events.add(
                self._text(key),
                self._kept(value),
                time_ms,
                self._text(event_type),
                self._kept(metadata),
                line,
            )

    def _text(self, text: str) -> str:
        """The text, or an equal one that is kept already."""
        if len(self._texts) < MOST_KEPT:
            return self._texts.setdefault(text, text)
        return self._texts.get(text, text)

    def _kept(self, value: Any, text: str | None = None) -> Any:
        """A value of JSON, whose `text` may be known, as it is kept."""
        if type(value) is str:
            return self._text(value)
        if type(value) not in (dict, list):
            return value
        if self._whole < MOST_KEPT:
            self._whole += 1
            return value
        return (json.dumps(value) if text is None else text).encode()


def _may_be_deep(text: str) -> bool:
    return len(text) > 2 * files.DEEPEST and text.count("{") + text.count("[") > files.DEEPEST


def foreign_format(content: bytes) -> str | None:
    """Reason for which a file without any event is unreadable, if it is in a known format of another kind."""
    head = content[:HEAD_BYTES]
    for encoding, mark in UNREAD_ENCODINGS.items():
        if head.startswith(mark) or TOKEN.encode(encoding) in head:
            name = encoding[:6].upper()
            return (
                f"the file is in {name}, which no checker reads; convert it with `iconv -f {name} -t UTF-8`"
            )
    old = OLD_TOKEN.search(head)
    if old is not None:
        return f"the lines begin with {old[0].decode()}, the format of a round before 0.7, which is not read"
    return None


def _lines(text: str) -> list[str]:
    return LINE_END.split(text) if "\r" in text else text.split("\n")


def names(path: Path, line: int, key: str) -> bool:
    """True if a line of a file has the name of a key, though it may be no event."""
    above = 0
    with files.opened(path) as file:
        for block in _blocks(file):
            lines = _lines(block.decode("utf-8", errors="replace"))
            # an empty line at the end of a block is none of its lines
            if above < line <= above + len(lines) and lines[line - above - 1]:
                return key in lines[line - above - 1]
            above += len(lines) - 1
    return False


def first_naming(path: Path, word: str) -> int | None:
    """Number of the first line that has a word in upper or lower case, be it an event or not; None without one."""
    above = 0
    with files.opened(path) as file:
        for block in _blocks(file):
            lines = _lines(block.decode("utf-8", errors="replace"))
            for number, line in enumerate(lines, start=above + 1):
                if word in line.casefold():
                    return number
            above += len(lines) - 1
    return None


def no_event(path: Path, key: str) -> str | None:
    """Place of a key that the log names, though in no event, and the reason; None where no line names it, or the log
    cannot be read any more."""
    try:
        line = first_naming(path, key)
    except OSError:
        return None
    if line is None:
        return None
    return (
        f"only in line {line} of {path.name}, which is not an MLLOG line: it needs `{TOKEN}` with one space, and the "
        f'object {{"key": "{key}", ...}} of JSON, the key in lower case'
    )


def first_value(path: Path, key: str) -> Any:
    """Value of the first line of `key`, found without reading the lines above it; None if there is none."""
    try:
        with files.opened(path) as file:
            for block in _blocks(file):
                event = _first(block.decode("utf-8", errors="replace"), key)
                if event is not None:
                    return event.value
    except OSError:
        return None
    return None


def _first(text: str, key: str) -> Event | None:
    quoted = f'"{key}"'
    start = 0
    while (at := text.find(quoted, start)) >= 0:
        start = max(start, text.rfind("\n", start, at) + 1, text.rfind("\r", start, at) + 1)
        end = LINE_END.search(text, at)
        line = text[start : end.start() if end else None]
        event = parse_line(line, 0)
        if isinstance(event, Event) and event.key == key:
            return event
        start += len(line)
    return None


def parse_line(
    text: str, line: int, *, is_plain: bool = False, remarks: Remarks | None = None
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
        if _may_be_deep(rest):
            files.refuse_depth(fields)
    except (ValueError, RecursionError):
        end = "" if rest.endswith("}") else " (the line ends in the middle)"
        end = " (it has control characters of a terminal)" if "\x1b" in rest else end
        end = " (it has single quotes)" if rest.startswith("{'") else end
        end = ESCAPED if rest.startswith('{\\"') else end
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


def _remark(remarks: Remarks | None, message: str, line: int) -> None:
    if remarks is not None:
        first, count = remarks.get(message, (line, 0))
        remarks[message] = first, count + 1


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
        unit = NANOSECONDS if isinstance(time_ms, int) and time_ms in NANOSECONDS_SINCE_2001 else ""
        return f"time_ms is not a time{unit}", official
    return (None if isinstance(key, str) else "key is not a text"), READ


def _official_time(time_ms: Any) -> str:
    """Time as the official parser reads it: it takes whatever `float` takes."""
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
