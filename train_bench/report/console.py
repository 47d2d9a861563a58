"""Console for all human-readable text: names and values of other people are plain text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from train_bench.core.escape import plain


class PlainConsole(Console):
    """rich's console without its markup: `[/x]` in a path is three characters, and a control character in a text is
    escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of which only rich's own move the cursor."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = "\n".join(plain(line) for line in segment.text.split("\n"))
                yield Segment(lines, segment.style)


def make_console() -> Console:
    """Console for human-readable output. In a pipe no line is wrapped, so that everything can be searched."""
    made = PlainConsole()
    return made if made.is_terminal or "COLUMNS" in os.environ else PlainConsole(width=10_000)


def print_line(console: Console, text: str) -> None:
    """One line; a verdict has its colour on a terminal."""
    verdict = text.removeprefix("  ")
    style = (
        "green" if verdict.startswith("VALID") else "bold red" if verdict.startswith("NOT VALID") else None
    )
    console.print(plain(text), style=style, highlight=False, markup=False, soft_wrap=True)
