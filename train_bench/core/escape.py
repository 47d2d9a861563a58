"""Escaping of untrusted text: terminal control sequences and line breaks become escapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(text: str) -> str:
    """`text` on one line, with control characters, line ends, directions of writing and half surrogates as
    escapes such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def plain_value(value: Any) -> Any:
    """JSON data with every text in it, names of fields included, made `plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(name): plain_value(item) for name, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, list) else value
