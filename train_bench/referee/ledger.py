"""Ledger of a contest: a line of JSON for each event, with the digest of the line before it. Whoever has the file can
verify it, and compute each level again; the digest of its last line, its head, stands for all of it.

A ledger that was written anew as a whole is consistent, too: only a head that was published before tells it apart.

opened     the contest, and the frontier of the first challenger
aa         pairs of the frontier with itself on a host
begun      a challenge; its level is spent from here on
session    the host and day of the runs that follow, and whether they are confined and have the network; again
           where that changes
run        before each run: one of the challenger that has no log afterwards counts as failed, and is not repeated
decided    the end of a challenge
abandoned  the other end: another challenge was begun, or it was given up
again      a record that was run again
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.errors import LogError
from train_bench.logs.log import NO_CONTENT
from train_bench.referee.error_budget import level_of

OPENED, BEGUN, RUN, DECIDED, ABANDONED = "opened", "begun", "run", "decided", "abandoned"
AA, SESSION, AGAIN = "aa", "session", "again"
LARGEST_BYTES, LARGEST_NUMBER = 2**26, 2**53
NOTHING = "0" * 64
"""The digest before the first line."""

FRONTIER, CHALLENGER = "a", "b"
"""Sides of a challenge, as its folders are named."""

Entry = Mapping[str, Any]


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _is_list(
    kind: Callable[[object], bool], least: int = 0, most: float = math.inf
) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(kind, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_NUMBER


def _is_level(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1


_KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(
        ("event", "contest", "frontier", "challenger", "side", "host", "day", "reason", "metric", "unit"),
        _is(str),
    ),
    **dict.fromkeys(("number", "index", "session", "seed", "runs"), _is_whole),
    **dict.fromkeys(("reasons", "questions", "logs"), _is_list(_is(str))),
    **dict.fromkeys(("record", "confined", "network"), _is(bool)),
    "level": _is_level,
    "core_flops": lambda value: value is None or _is_number(value),
    "minutes": _is_list(_is_list(_is_number), 2, 2),
    "differences": _is_list(_is_number, 2),
    "logarithms": _is_list(_is_list(_is_number, 2), 1),
    "qualities": _is_list(_is_list(lambda value: value is None or _is_number(value)), 2, 2),
}
"""What an entry has under a name, if it has it."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    OPENED: ("contest", "frontier"),
    AA: ("frontier", "host", "differences"),
    BEGUN: ("number", "frontier", "challenger", "level", "seed"),
    SESSION: ("number", "session", "host", "day", "confined", "network"),
    RUN: ("number", "side", "index"),
    DECIDED: ("number", "record"),
    ABANDONED: ("number",),
    AGAIN: ("number", "verdict", "host"),
}


def _flaw(entry: Entry) -> str | None:
    """What an entry lacks, or has as something else; None of one that can be read."""
    for name, fits in _KINDS.items():
        if name in entry and not fits(entry[name]):
            return f"its {name} is {str(entry[name])[:40]!r}"
    lacks = [name for name in ("event", *_NEEDED.get(str(entry.get("event")), ())) if name not in entry]
    if lacks:
        return (
            f"it lacks {', '.join(lacks)}; if an earlier version of train_bench wrote it, use that one to verify it, "
            "and begin a contest with a ledger of its own here"
        )
    return None


def digest(entry: Entry) -> str:
    """sha256 of an entry, independent of its formatting."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> list[dict[str, Any]]:
    """Entries of a ledger; none where there is no file. The beginning of a line that a power failure cut off does not
    count; a last line that lacks its newline alone does. Raises `LogError` for lines that are no entries."""
    try:
        content = files.read_bytes(path, largest=LARGEST_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or error}.") from error
    entries = []
    for number, line in enumerate(content[: _whole(content)].splitlines(), start=1):
        entry = _parsed(line)
        flaw = "it is not a JSON object" if entry is None else _flaw(entry)
        if entry is None or flaw is not None:
            raise LogError(f"Line {number} of {path} is not an entry of a ledger; {flaw}.")
        entries.append(entry)
    return entries


def _whole(content: bytes) -> int:
    """Bytes of the whole lines, with a last one that lacks its newline alone."""
    ended = content.rfind(b"\n") + 1
    return ended if _parsed(content[ended:]) is None else len(content)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Object of a line; None where it is none."""
    try:
        entry = files.parse_json(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def append(path: Path, entries: Sequence[Entry], event: str, **content: Any) -> list[Entry]:
    """The entries with one more, which is on disk."""
    entry = {"event": event, "previous": head(entries), **content}
    with files.opened_to_append(path) if path.exists() else path.open("xb") as file:
        if path.stat().st_size:
            before = files.read_bytes(path, largest=LARGEST_BYTES)
            whole = before[: _whole(before)]
            file.truncate(len(whole))
            if whole and not whole.endswith(b"\n"):
                file.write(b"\n")
        file.write(json.dumps(entry, sort_keys=True).encode() + b"\n")
    files.sync_file(path)
    return [*entries, entry]


def head(entries: Sequence[Entry]) -> str:
    """Digest of the last line."""
    return digest(entries[-1]) if entries else NOTHING


def challenges(entries: Sequence[Entry]) -> list[Entry]:
    """What was begun, in order: each spends its level, whether it was decided or not."""
    return [entry for entry in entries if entry.get("event") == BEGUN]


def pending(entries: Sequence[Entry]) -> Entry | None:
    """The challenge that has begun and has no end."""
    begun = challenges(entries)
    ended = [entry.get("number") for entry in entries if entry.get("event") in (DECIDED, ABANDONED)]
    return begun[-1] if begun and begun[-1].get("number") not in ended else None


def runs(entries: Sequence[Entry], number: int, side: str) -> list[int]:
    """Runs of a side that a challenge has begun."""
    return [
        int(entry.get("index", -1))
        for entry in entries
        if (entry.get("event"), entry.get("number"), entry.get("side")) == (RUN, number, side)
    ]


def core_flops(entries: Sequence[Entry], number: int) -> float | None:
    """Operations of a processor's second, as measured at the sessions of a challenge; None if they were not."""
    measured = [
        one.get("core_flops") for one in entries if (one["event"], one.get("number")) == (SESSION, number)
    ]
    return max((one for one in measured if one is not None), default=None)


def records(entries: Sequence[Entry]) -> list[int]:
    """Numbers of the challenges that made a record, from 1."""
    return [
        int(entry["number"])
        for entry in entries
        if entry.get("event") == DECIDED and entry.get("record") is True
    ]


def next_level(entries: Sequence[Entry], error: float) -> float:
    """Level of the next challenge."""
    return level_of(records(entries), len(challenges(entries)) + 1, error)


def frontier(entries: Sequence[Entry]) -> str:
    """Commit to beat: that of the last record, or of the opening."""
    made = {entry.get("number") for entry in entries if entry.get("record") is True}
    last = [entry for entry in challenges(entries) if entry.get("number") in made]
    return str(last[-1].get("challenger") if last else entries[0].get("frontier"))


def problems(entries: Sequence[Entry], contest: str, error: float) -> Iterator[str]:
    """What does not fit in a ledger, a sentence each: its chain, the digest of the `contest`, frontier and level of
    each challenge, and logs that count twice."""
    before = NOTHING
    seen: dict[Any, int] = {}
    begun: set[tuple[Any, str]] = set()
    earlier: list[Entry] = []
    for line, entry in enumerate(entries, start=1):
        if entry.get("previous") != before:
            yield f"Line {line} does not follow from the one before it; one was edited, or a line is missing."
        before = digest(entry)
        yield from _misfit(earlier, entry, line, contest, error)
        if entry.get("event") != RUN:
            earlier.append(entry)
        elif entry.get("side") == CHALLENGER:
            run = entry.get("number"), str(entry.get("index"))
            if run in begun:
                yield f"Line {line} begins run {run[1]} of the challenger again; it counts once, and as failed."
            begun.add(run)
        for log in map(str, entry.get("logs", ())) if isinstance(entry.get("logs"), list) else ():
            if log == NO_CONTENT:  # of a run that died before its first line
                continue
            if log in seen:
                yield f"Line {line} has a log of line {seen[log]} ({log[:12]}); its runs were replayed."
            seen[log] = line


def _misfit(earlier: Sequence[Entry], entry: Entry, line: int, contest: str, error: float) -> Iterator[str]:
    event = entry.get("event")
    if (line == 1) is not (event == OPENED):
        yield f"Line {line} is '{event}'; a ledger begins with '{OPENED}', once."
        return
    if event == OPENED and entry.get("contest") != contest:
        yield "The contest is not the one that the ledger was opened for; its file was edited."
    now = pending(earlier)
    if event == BEGUN:
        if now is not None:
            yield f"Line {line} begins a challenge, and challenge {now.get('number')} has no end."
        number, level = len(challenges(earlier)) + 1, next_level(earlier, error)
        if entry.get("number") != number:
            yield f"Line {line} is challenge {entry.get('number')}; the next one is {number}."
        if not isinstance(entry.get("level"), float) or abs(entry["level"] / level - 1) > 1e-9:
            yield f"Challenge {number} was tested at level {entry.get('level')}; the budget gives {level:.3g}."
        if entry.get("frontier") != frontier(earlier):
            other = str(entry.get("frontier"))[:8]
            yield f"Challenge {number} is against {other}; the frontier is {frontier(earlier)[:8]}."
    if event in (RUN, SESSION, DECIDED, ABANDONED) and (
        now is None or entry.get("number") != now.get("number")
    ):
        yield f"Line {line} is '{event}' of challenge {entry.get('number')}, which is not the one that is under way."
    if event == SESSION and any(
        one.get("session") != entry.get("session")
        and (one.get("host"), one.get("day")) == (entry.get("host"), entry.get("day"))
        for one in earlier
        if (one.get("event"), one.get("number")) == (SESSION, entry.get("number"))
    ):
        yield f"Line {line} is a session of challenge {entry.get('number')} on the host and day of another one."
    if event == AGAIN and entry.get("number") not in records(earlier):
        yield f"Line {line} is of challenge {entry.get('number')}, which made no record."
