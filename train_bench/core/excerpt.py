"""Excerpts of the output of programs: the line that names the cause, shortened between words."""

from __future__ import annotations

import re

LONGEST_EXCERPT = 300

CAUSE = re.compile(
    r"^\s*[\w.]*(?:Error|Exception)\b|\b(?:error|fatal|fail(?:ed|ure)?|can(?:no|')t|could not|unable|refused|denied|"
    r"not found|no such|in use|unknown|unrecognized|invalid|time[ds]? ?out)\b",
    re.IGNORECASE,
)


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


def last_error(stderr: str) -> str | None:
    """The last line that names an error; None without one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if CAUSE.search(line)), None)
    return None if found is None else shorten(found)


def last_line(stderr: str) -> str | None:
    """The last line that names an error, else the last line; None for an empty text."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return last_error(stderr) or (shorten(lines[-1]) if lines else None)
