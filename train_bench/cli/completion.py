"""Completion in a shell: Hydra completes options, and knows one program without verbs. It gets the line without the
verb; the verbs themselves are completed here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import get_type_hints

from train_bench.cli.completion_cache import LINE, POINT
from train_bench.plan import discover

__all__ = ["FLAGS", "LINE", "POINT"]

FLAGS = ("-sc", "--shell-completion")


def verb_and_arguments(arguments: Sequence[str], verbs: Sequence[str]) -> tuple[str | None, list[str]]:
    """Verb whose options a shell completes with `arguments` (`-sc query=bash`), and the arguments for that verb;
    None and the matching verbs if the line has no verb yet. The line is changed to one that Hydra understands.

    With `install=bash` any verb prints the same, because it is for the program as a whole.
    """
    action = arguments[1] if len(arguments) > 1 else ""
    if not action.startswith("query="):
        return "run", list(arguments)
    program, _, rest = os.environ.get(LINE, "").partition(" ")
    verb, blank, options = rest.lstrip().partition(" ")
    if not blank:
        return None, [name for name in verbs if name.startswith(verb)]
    line = f"{program} {options}"
    os.environ[LINE], os.environ[POINT] = line, str(len(line))
    return verb, list(arguments)


def last_word() -> str:
    """The word in which the cursor stands."""
    return os.environ.get(LINE, "").split(" ")[-1]


def options(page: str) -> list[str]:
    """Flags in a page of help that complete the last word, and `benchmark=NAME` where the verb takes it."""
    last = last_word()
    known = {*re.findall(r"(?<![\w-])--[a-z][\w-]*", page)} if last.startswith("-") else set()
    if "benchmark=NAME" in page and last:
        known |= {f"benchmark={name}" for name in discover.variants()}
    return sorted(word for word in known if word.startswith(last))


def hydra_words(printed: str) -> Iterator[str]:
    """Completions by Hydra as they are typed: without schemas, and with all values of a choice."""
    values = _values(last_word())
    if values is not None:
        yield from values
        return
    yield from (word for word in printed.split() if not word.endswith("_schema"))


def _values(word: str) -> list[str] | None:
    """Completions of an option that is a choice or a boolean; None for another."""
    name, sign, _ = word.partition("=")
    from train_bench.plan.run_config import RunConfig  # deferred, because it loads hydra

    kind = get_type_hints(RunConfig).get(name) if sign else None
    if kind is bool:
        names = ["false", "true"]
    elif isinstance(kind, type) and issubclass(kind, Enum):
        names = list(kind.__members__)
    else:
        return None
    return [choice for one in names if (choice := f"{name}={one}").startswith(word)]


def points(words: Sequence[str]) -> list[str]:
    """Completions of `point=`, which Hydra does not know, for the words of a line: its name, or the batch sizes of the
    benchmark in the line."""
    last = words[-1] if words else ""
    if not last.startswith("point="):
        return ["point="] if "point=".startswith(last) else []
    named = [word.partition("=")[2] for word in words if word.startswith("benchmark=")]
    benchmark = named[-1] if named else discover.defaults()["benchmark"]
    return [word for size in discover.points_of(benchmark) if (word := f"point={size}").startswith(last)]
