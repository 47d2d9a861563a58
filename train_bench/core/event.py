"""One log line: key, value, time and line number; and the lines of a log, by columns."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import eq
from types import MappingProxyType
from typing import Any, NamedTuple, overload


class Event(NamedTuple):
    """An MLLOG event. `time_ms` is milliseconds since the epoch; `line` counts from 1."""

    key: str
    value: Any
    time_ms: int
    event_type: str = "POINT_IN_TIME"
    metadata: Mapping[str, Any] = MappingProxyType({})
    line: int = 0


class OtherMetadata(dict[str, Any]):
    """Metadata that is not a JSON object: empty for readers, `raw` as logged."""

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw = raw


def raw_metadata(event: Event) -> Any:
    """Metadata as logged, which may be any JSON value."""
    metadata = event.metadata
    return metadata.raw if isinstance(metadata, OtherMetadata) else metadata


MANY = 16
"""Largest share of a log's events, one in so many, that is looked up; more are gone through."""

scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""JSON value at a place of a text, and the place of its end; raises `ValueError` or `StopIteration`."""


_new = tuple.__new__
"""Makes an event of a tuple without the check of its length, which takes half the time."""


class Events(Sequence[Event]):
    """Events of a log in their order. A log may have millions, of which few are looked at: they are kept by columns,
    found by key, and made as they are asked for. Values and metadata that are equal are shared, so they are never
    changed."""

    __slots__ = ("_indexed", "_keys", "_lines", "_metadata", "_positions", "_times", "_types", "_values")

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._keys: list[str] = []
        self._values: list[Any] = []
        self._times = array("q")
        self._types: list[str] = []
        self._metadata: list[Mapping[str, Any] | bytes] = []
        self._lines = array("q")
        self._positions: dict[str, array[int]] = {}
        self._indexed = 0
        for event in events:
            self.add(*event)

    def add(
        self,
        key: str,
        value: Any,
        time_ms: int,
        event_type: str,
        metadata: Mapping[str, Any] | bytes,
        line: int,
    ) -> None:
        """Add an event at the end. Bytes for its value or its metadata are ASCII text of valid JSON, read when they
        are asked for."""
        self._times.append(time_ms)
        self._lines.append(line)
        self._keys.append(key)
        self._values.append(value)
        self._types.append(event_type)
        self._metadata.append(metadata)

    @property
    def times(self) -> Sequence[int]:
        """Time of each in milliseconds."""
        return self._times

    @property
    def keys(self) -> Collection[str]:
        """Distinct keys in the order of their first lines."""
        return self._index().keys()

    def count(self, key: object) -> int:
        """Number of events of a key."""
        return len(self._index().get(str(key), ()))

    def of(self, *keys: str, since: int = 0) -> Iterator[Event]:
        """Events of these keys in the order of the log, from position `since` on."""
        if since:
            wanted = frozenset(keys)
            return (self._event(at) for at in range(since, len(self)) if self._keys[at] in wanted)
        index = self._index()
        found = [index[key] for key in dict.fromkeys(keys) if key in index]
        if len(found) == 1:
            return map(self._event, found[0])
        if MANY * sum(map(len, found)) < len(self):
            return map(self._event, sorted(chain.from_iterable(found)))
        return map(self._event, compress(range(len(self)), map(frozenset(keys).__contains__, self._keys)))

    def first_of_each(self) -> dict[str, Event]:
        """First event of each key."""
        return {key: self._event(at[0]) for key, at in self._index().items()}

    def first(self, key: str) -> Event | None:
        """First event of a key; None if there is none."""
        return next(self.of(key), None)

    def last(self, key: str) -> Event | None:
        """Last event of a key; None if there is none."""
        at = self._index().get(key)
        return None if at is None else self._event(at[-1])

    def with_value(self, key: str, value: Any) -> Events:
        """The events with another value for those of a key."""
        other = Events()
        for name in ("_indexed", "_keys", "_times", "_types", "_metadata", "_lines", "_positions"):
            setattr(other, name, getattr(self, name))
        other._values = [
            value if known == key else own for known, own in zip(self._keys, self._values, strict=True)
        ]
        return other

    def _event(self, at: int) -> Event:
        value: Any = self._values[at]
        if type(value) is bytes:
            value = _parsed(value)
        metadata: Any = self._metadata[at]
        if type(metadata) is bytes:
            metadata = _parsed(metadata)
        return _new(
            Event, (self._keys[at], value, self._times[at], self._types[at], metadata, self._lines[at])
        )

    def _index(self) -> dict[str, array[int]]:
        positions, keys = self._positions, self._keys
        for at in range(self._indexed, len(keys)):
            known = positions.get(keys[at])
            if known is None:
                known = positions[keys[at]] = array("I")
            known.append(at)
        self._indexed = len(keys)
        return positions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Event]:
        return map(self._event, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        places = range(len(self))[at]
        return self._event(places) if isinstance(places, int) else list(map(self._event, places))


def _parsed(text: bytes) -> Any:
    return scan(text.decode("ascii"), 0)[0]
