"""Console for all human-readable text: names and values of other people are plain text."""

from __future__ import annotations

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
