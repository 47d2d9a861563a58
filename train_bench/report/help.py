"""Pages of help: every option with its default and a sentence, wrapped at the terminal's width."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence

WIDEST = 110
INDENT = 6
COLUMN = 38
"""Column in which a note begins, beside its subject."""


class Formatter(argparse.HelpFormatter):
    """argparse's page, of which a description keeps its paragraphs and its indented lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(prose(text, width), indent)


def page(
    top: Sequence[str],
    parts: Mapping[str, Sequence[tuple[str, str, str]]],
    notes: Sequence[str | Mapping[str, str]],
) -> str:
    """`top` is above the options; `parts` holds headings, and under each the name, the default and the sentence of its
    options; `notes` are sentences, or words with a sentence each."""
    width = min(WIDEST, shutil.get_terminal_size().columns)
    above = (prose(text, width) for text in top)
    below = (prose(one, width) if isinstance(one, str) else "\n".join(_table(one, width)) for one in notes)
    return "\n".join(["\n\n".join(above), *_lines(parts, width), "", "\n\n".join(below), ""])


def prose(text: str, width: int) -> str:
    """Paragraphs, wrapped. An indented line is a command and stays one; the second of two columns is wrapped."""
    paragraphs = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join("\n".join(_paragraph(one, width)) for one in paragraphs)


def _paragraph(text: str, width: int) -> Iterator[str]:
    lines = text.split("\n")
    if not any(line.startswith(" ") for line in lines):
        yield from _wrapped(text, width)
        return
    rows: list[str] = []
    for line in lines:
        if rows and line[: _column(rows[-1])].isspace():
            rows[-1] += f" {line.strip()}"
        else:
            rows.append(line)
    for row in rows:
        column = _column(row)
        yield from _wrapped(row, width, below=" " * column) if column else [row]


def _column(line: str) -> int:
    """Beginning of the second of two columns; 0 of a line without."""
    begin = re.match(r"\s+\S+(?: \S+)*\s{2,}(?=\S)", line)
    return begin.end() if begin else 0


def _lines(parts: Mapping[str, Sequence[tuple[str, str, str]]], width: int) -> Iterator[str]:
    for heading, options in parts.items():
        yield from ("", f"{heading}:")
        for name, default, about in options:
            yield f"  {name}={default}"
            yield from _wrapped(about, width, " " * INDENT, " " * INDENT)


def _table(notes: Mapping[str, str], width: int) -> Iterator[str]:
    for words, sentence in notes.items():
        yield from _wrapped(sentence, width, f"  {words}".ljust(COLUMN) + "  ", " " * (COLUMN + 2))


def _wrapped(text: str, width: int, begin: str = "", below: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )
