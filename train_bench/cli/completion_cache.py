"""Completions of earlier lines, kept in the user's cache until a file that they depend on changes, and campaigns.
A shell waits for each of them, so that nothing is imported here that takes time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

LINE, POINT = "COMP_LINE", "COMP_POINT"
"""Environment variables of shells: what is typed, and where in it the cursor stands."""

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes time

WITH_CODE = ("cli", "cli/commands", "plan", "conf", "conf/*", "launchers/*", "references/*")
"""Folders of the package whose files completions are made of."""

GROUPS = ("benchmark=", "launcher=", "point=", "system=")
"""Options on which the completions of others depend."""

OF_CAMPAIGNS = (
    "judge",
    "score",
    "compare",
    "report",
    "settle",
    "package",
    "verify",
    "serve",
    "export",
    "startup",
)
"""Verbs that take the folder of a campaign."""

SEPARATORS = "=.,[:"
MOST_LINES, MOST_FOLDERS = 500, 2000


def complete(query: str, compute: Callable[[], list[str]]) -> list[str]:
    """Completions of the last word of the line, for the kind of shell in `query`. `compute` finds those of a line that
    is not known yet, which it reads from the environment."""
    line = os.environ.get(LINE, "")
    words = line.split(" ")
    last, verb = words[-1], next(iter(words[1:-1]), "")
    found = campaigns(verb, last)
    if found is not None:
        return found
    if "=" not in last and ("/" in last or last.startswith((".", "~"))):
        return []  # the shell completes names of files
    if "/" in last or last.partition("=")[2].startswith((".", "~")):
        return compute()
    stem = last[: max(map(last.rfind, SEPARATORS)) + 1] or last[:1]
    chosen = [word for word in words[:-1] if word.startswith(GROUPS)]
    key, stamp, path = " ".join([query, verb, *chosen, stem]), _stamp(), _file()
    kept = _read(path)
    if kept.get("stamp") != stamp or len(kept["lines"]) > MOST_LINES:
        kept = {"stamp": stamp, "lines": {}}
    if key not in kept["lines"]:
        os.environ[LINE] = line[: len(line) - len(last)] + stem
        os.environ[POINT] = str(len(os.environ[LINE]))
        kept["lines"][key] = compute()
        _write(path, kept)
    return [word for word in kept["lines"][key] if word.startswith(last)]


def campaigns(verb: str, last: str) -> list[str] | None:
    """Completions by folders of campaigns below the working folder; None for a word that is no such folder."""
    option = "resume=" if verb in ("run", "rcp") and last.startswith("resume=") else ""
    if not option and (verb not in OF_CAMPAIGNS or last.startswith("-") or "=" in last):
        return None
    found = [word for folder in _folders() if (word := f"{option}{folder}").startswith(last)]
    return sorted(found) or ([] if option else None)


def _folders() -> Iterator[str]:
    """Folders with a plan where `list campaigns` looks for them."""
    left = MOST_FOLDERS
    level = [name for name in _subfolders("") if not name.startswith(".")]
    for depth in range(3):
        level = level[: max(left, 0)]
        left -= len(level)
        yield from (folder for folder in level if os.path.isfile(f"{folder}/plan.json"))  # noqa: PTH113
        if depth == 1:
            level = [folder for folder in level if folder.startswith("results/")]
        level = [inner for folder in level for inner in _subfolders(folder)] if depth < 2 else []


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [f"{folder}/{name}" if folder else name for name in names]


def _stamp() -> list[int]:
    """Number of the files that completions are made of, and a sum of their dates."""
    outside = os.environ.get("TRAIN_BENCH_PATH", "")
    places = [f"{PACKAGE}/{place}" for place in WITH_CODE]
    places += [
        f"{folder}/{place}" for folder in filter(None, outside.split(os.pathsep)) for place in ("", "conf/*")
    ]
    number = total = 0
    for place in places:
        parent, star, _ = place.partition("/*")
        for folder in _subfolders(parent) if star else [parent]:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.endswith((".py", ".yaml")):
                            number, total = number + 1, total + entry.stat().st_mtime_ns
            except OSError:
                continue
    return [number, total, len(outside)]


def _file() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return f"{home}/train_bench/completion.json"


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            kept = json.load(file)
        return kept if isinstance(kept, dict) and isinstance(kept.get("lines"), dict) else {}
    except (OSError, ValueError):
        return {}


def _write(path: str, kept: object) -> None:
    """Write the file whole, or not at all where it cannot be written."""
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(kept, file)
        os.replace(part, path)  # noqa: PTH105
    except OSError:
        return
