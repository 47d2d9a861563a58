"""The page of `run --help`: every option with its default and a sentence."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence

WIDEST = 110
INDENT = 6


def page(usage: str, about: str, parts: Mapping[str, Sequence[tuple[str, str, str]]], notes: str) -> str:
    """`parts` holds headings, and under each the name, the default and the sentence of its options."""
    return "\n".join([usage, "", about, *_lines(parts), "", notes.rstrip(), ""])


def _lines(parts: Mapping[str, Sequence[tuple[str, str, str]]]) -> Iterator[str]:
    width = min(WIDEST, shutil.get_terminal_size().columns)
    for heading, options in parts.items():
        yield from ("", f"{heading}:")
        for name, default, about in options:
            yield f"  {name}={default}"
            yield from textwrap.wrap(
                about, width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT
            )
