"""Completion in a shell: Hydra completes options, and knows one program without verbs. It gets the line without the
verb; the verbs themselves are completed here."""

from __future__ import annotations

import os
from collections.abc import Sequence

from train_bench.plan import discover

FLAGS = ("-sc", "--shell-completion")
LINE, POINT = "COMP_LINE", "COMP_POINT"
"""Environment variables of shells: what is typed, and where in it the cursor stands."""


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


def points(words: Sequence[str]) -> list[str]:
    """Completions of `point=`, which Hydra does not know, for the words of a line: its name, or the batch sizes of the
    benchmark in the line."""
    last = words[-1] if words else ""
    if not last.startswith("point="):
        return ["point="] if "point=".startswith(last) else []
    named = [word.partition("=")[2] for word in words if word.startswith("benchmark=")]
    benchmark = named[-1] if named else discover.defaults()["benchmark"]
    return [word for size in discover.points_of(benchmark) if (word := f"point={size}").startswith(last)]
