"""Glossary, the page of the documentation, for a terminal: every word that tables and pages of results print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.errors import UnknownName
from train_bench.report.console import print_line

PAGE = Path(__file__).with_name("glossary.md")
"""`docs/glossary.md`, which an installation without a checkout has, too."""


def read() -> list[dict[str, str]]:
    """`section`, `word` and `meaning` of each row of the page, in its order."""
    return list(_rows(PAGE.read_text(encoding="utf-8")))


def matching(words: Sequence[str]) -> list[dict[str, str]]:
    """Rows of which every one of `words` is a part of the word; all without any. Raises `UnknownName` if there are
    none."""
    rows = read()
    found = [row for row in rows if all(one.lower() in row["word"].lower() for one in words)]
    if not found:
        known = {word for row in rows for word in row["word"].split(", ")}
        raise UnknownName(
            what="word of the glossary", name=" ".join(words), known=known, more="train-bench glossary"
        )
    return found


def show(content: Mapping[str, Any], console: Console) -> None:
    """A line for each word, below the name of its section."""
    section = None
    for row in content["words"]:
        if row["section"] != section:
            console.print(f"{'' if section is None else chr(10)}{row['section']}", style="bold")
        section = row["section"]
        print_line(console, f"  {row['word']}: {row['meaning']}", column=4)


def _rows(text: str) -> Iterator[dict[str, str]]:
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| "):
            word, meaning = (cell.strip().replace("`", "") for cell in line[1:-1].split("|", 1))
            if word != "Word":
                yield {"section": section, "word": word, "meaning": meaning}
