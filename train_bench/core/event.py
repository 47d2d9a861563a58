"""One log line: key, value, time and line number."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An MLLOG event. `time_ms` is milliseconds since the epoch; `line` counts from 1. A tuple, because a
    round of submissions has millions of them."""

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
