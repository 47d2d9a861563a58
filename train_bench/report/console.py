"""Console for all human-readable text: names and values of other people are plain text."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.containers import Lines
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from train_bench.core.escape import plain
from train_bench.errors import OutputClosed
from train_bench.judge.state import INCOMPLETE, VALID

UNBOUNDED = 10_000
"""Columns of a console whose sentences are never wrapped."""

WIDEST_TABLE = 160
"""Most columns of a table, in a file as well."""

STYLES = {"VALID": "green", "INCOMPLETE": "yellow", "NOT VALID": "bold red"}
"""Styles of verdicts on a terminal."""

WORD = re.compile(r"\s*\S+\s*")
PIECE = re.compile(r".*?[/_-]+|.+", re.DOTALL)


class BreakableText(Text):
    """Text of which a word that is longer than the line breaks behind `/`, `_` and `-`."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """Wrap as rich does, with long words divided first."""
        if options.get("no_wrap") or options.get("overflow") == "ignore":
            return super().wrap(console, width, **options)
        lines = Lines()
        for line in self.split(allow_blank=True):
            for part in line.divide(list(breaks(line.plain, width))):
                lines.extend(Text.wrap(part, console, width, **options))
        return lines


def breaks(text: str, width: int) -> Iterator[int]:
    """Offsets at which lines of a text end, where a word in it is longer than the width; else none, and rich wraps."""
    words = WORD.findall(text)
    if all(cell_len(word.strip()) <= width for word in words):
        return
    at = column = 0
    for word in words:
        long = cell_len(word.strip()) > width
        for piece in PIECE.findall(word) if long else [word]:
            if column and column + cell_len(piece.rstrip()) > width:
                yield at
                column = 0
            at, column = at + len(piece), column + cell_len(piece)


class PlainConsole(Console):
    """rich's console without its markup: `[/x]` in a path is three characters, and a control character in a text is
    escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        """Print nothing more, and raise `OutputClosed`: rich would end the process."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise OutputClosed

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a table is no wider than can be read, wherever it goes."""
        if self.width > WIDEST_TABLE and any(isinstance(one, Table) for one in objects):
            options.setdefault("width", WIDEST_TABLE)
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text that can be broken."""
        return _breakable(super().render_str(text, **options))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of which only rich's own move the cursor."""
        if type(renderable) is Text:
            renderable = _breakable(renderable)
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = "\n".join(plain(line) for line in segment.text.split("\n"))
                yield Segment(lines, segment.style)


def _breakable(text: Text) -> BreakableText:
    return BreakableText(
        text.plain,
        style=text.style,
        justify=text.justify,
        overflow=text.overflow,
        no_wrap=text.no_wrap,
        end=text.end,
        tab_size=text.tab_size,
        spans=text.spans,
    )


def make_console() -> Console:
    """Console for human-readable output, as wide as the terminal, also where a pager or a filter is between. In a file
    no sentence is wrapped, so that everything can be searched."""
    made = PlainConsole()
    bounded = made.is_terminal or "COLUMNS" in os.environ or is_piped_to_terminal()
    return made if bounded else PlainConsole(width=UNBOUNDED)


def coloured(state: str) -> Text:
    """State of a result in its colour; in capitals if it is neither valid nor incomplete."""
    return Text(state if state in (VALID, INCOMPLETE) else state.upper(), style=STYLES.get(state.upper(), ""))


def is_piped_to_terminal() -> bool:
    """True if standard output is a pipe of a command that was typed on a terminal."""
    try:
        return stat.S_ISFIFO(os.fstat(1).st_mode) and any(map(os.isatty, (0, 2)))
    except OSError:
        return False


def print_line(console: Console, text: str, *, column: int | None = None) -> None:
    """A sentence, wrapped at words; a verdict has its colour on a terminal. Paths are not broken, to be copied. Further
    lines begin at `column`, by default where the first does."""
    verdict = text.removeprefix("  ")
    style = next((style for word, style in STYLES.items() if verdict.startswith(word)), None)
    indent = " " * (len(text) - len(text.lstrip()) if column is None else column)
    lines = textwrap.wrap(
        plain(text), console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    for line in lines or [""]:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
