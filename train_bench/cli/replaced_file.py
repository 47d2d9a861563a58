"""Files that an answer may replace: earlier answers of this program, and nothing else of a user's."""

from __future__ import annotations

import os
from pathlib import Path

from train_bench.core import files
from train_bench.errors import RequestError

PAGE, TABLE, OBJECT = b"train_bench</title>", b"round,", b"{"
"""Beginnings of answers: the title of a page, the first column of a table of published entries, an object."""

BEGINNING_BYTES = 10_000


def refuse_foreign(path: Path) -> None:
    """Raise `RequestError` if `path` is a file that is no earlier answer: of a campaign, or of another program.
    Raises as `files.resolved`."""
    files.resolved(path)
    if not os.path.lexists(path):
        return
    if _of_campaign(path) or not _is_answer(path):
        raise RequestError(
            f"--to is '{path}', which exists and is not an earlier output of this kind; give another name, or "
            "remove it."
        )


def _of_campaign(path: Path) -> bool:
    """True for a file that a campaign consists of; its pages may be regenerated."""
    return path.suffix != ".html" and (path.parent / "plan.json").is_file()


def _is_answer(path: Path) -> bool:
    try:
        with files.opened(path) as file:
            beginning = file.read(BEGINNING_BYTES)
    except OSError:
        return False
    if path.suffix == ".html":
        return not beginning or PAGE in beginning
    return not beginning or beginning.lstrip().startswith((TABLE, OBJECT)) or PAGE in beginning
