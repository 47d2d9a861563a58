"""Excerpts of the output of programs: the line that names the cause, shortened between words."""

from __future__ import annotations

import re

LONGEST_EXCERPT = 300

CAUSE = re.compile(
    r"^\s*[\w.]*(?:Error|Exception)\b|\b(?:error|fatal|fail(?:ed|ure)?|can(?:no|')t|could not|unable|refused|denied|"
    r"not found|no such|in use|unknown|unrecognized|invalid|time[ds]? ?out)\b",
    re.IGNORECASE,
)

EXCEPTION = re.compile(
    r"(?!.*\b(?:ChildFailedError|CalledProcessError):)[\w.]*(?:Error|Exception|Interrupt): *\S"
)
"""Last line of a Python traceback, if it is not that of a launcher which reports another process's end."""

OWN = "train_bench.errors."


def shorten(text: str, longest: int = LONGEST_EXCERPT) -> str:
    """Text of at most `longest` characters, without its end if it is longer; no word is cut."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 3]
    if not text[longest - 3].isspace() and " " in kept:
        kept = kept.rpartition(" ")[0]
    return f"{kept.rstrip()}..."


def tail(text: str, longest: int) -> str:
    """The end of a text, at most `longest` characters; no word is cut."""
    if len(text) <= longest:
        return text
    kept = text[-(longest - 3) :]
    if not text[-(longest - 2)].isspace():
        kept = re.split(r"\s", kept, maxsplit=1)[-1]
    return f"...{kept.lstrip()}"


def last_error(stderr: str, longest: int = LONGEST_EXCERPT) -> str | None:
    """The last exception with a message, else the last line that names an error; None without one. What torchrun,
    mpirun or srun prints after the error of a process does not hide it. A sentence of train_bench is whole."""
    lines = _lines(stderr)
    for kind in (EXCEPTION.match, CAUSE.search):
        found = next((line for line in reversed(lines) if kind(line)), None)
        if found is not None:
            return found if found.startswith(OWN) else shorten(found, longest)
    return None


def last_words(stderr: str, longest: int = LONGEST_EXCERPT) -> str:
    """The last error, else the last line with a word; empty without one."""
    lines = _lines(stderr)
    return last_error(stderr, longest) or (shorten(lines[-1], longest) if lines else "")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
