"""One line of a result: what was logged, when, and where in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An MLLOG event. `time_ms` is milliseconds since the epoch; `line` counts from 1."""

    key: str
    value: Any
    time_ms: int
    event_type: str = "POINT_IN_TIME"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0
