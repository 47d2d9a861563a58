"""Progress bar for long loops over countable items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def bar(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """The items, and on a terminal a bar labelled `what` with items done, total and time left.

    It is drawn on the standard error and vanishes at the end; in pipes nothing is drawn. `total` is
    taken from the length of `items` where they have one.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, description=what, total=total)
