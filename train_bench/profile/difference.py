"""Difference of two profiles: which parts of a step got slower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.errors import LogError, RequestError
from train_bench.profile.document import VERSION

SAME = 0.05
"""Smallest reported change, as a share of the window."""

MOST_ROWS = 20

TEXT, NUMBER = (str,), (int, float)
NUMBER_OR_NULL = (int, float, type(None))

FIELDS: dict[str, Any] = {
    **dict.fromkeys(("benchmark", "launcher", "device", "precision"), TEXT),
    **dict.fromkeys(("ranks", "threads_per_rank", "global_batch_size"), NUMBER),
    "workers": NUMBER_OR_NULL,
    "answer": {"sentence": TEXT, "findings": [{"sentence": TEXT}]},
    "window": {"seconds": NUMBER, "steps": NUMBER},
    "step": {"seconds": NUMBER, "p95": NUMBER_OR_NULL, "samples_per_second": NUMBER_OR_NULL},
    "waterfall": [{"name": TEXT, "seconds": NUMBER, "share": NUMBER}],
    "levels": [{"level": NUMBER, "name": TEXT, "overhead": (dict, type(None)), "labelled": (bool,)}],
    "classes": [{"phase": TEXT, "class": TEXT, "seconds": NUMBER}],
    "layers": [{"name": TEXT, "window_forward_seconds": NUMBER, "window_backward_seconds": NUMBER}],
    "operators": [{"name": TEXT, "phase": TEXT, "window_seconds": NUMBER}],
    "memory": (dict,),
    "compute": {"denominator": TEXT, "share_of_peak": NUMBER_OR_NULL, "mfu": NUMBER_OR_NULL},
    "processor_use": NUMBER_OR_NULL,
    "bound": (dict, type(None)),
    "notes": [TEXT],
}
"""Schema of the fields of `profile.json` that are read: types of a value, fields of an object, items of a list."""

PREDICTED: dict[str, Any] = {
    "answer": {"sentence": TEXT},
    **dict.fromkeys(("step_seconds", "unique", "reused", "memory_bytes"), NUMBER),
    "phases": [{"name": TEXT, "seconds": NUMBER}],
    "dearest": [{"seconds": NUMBER, "calls": NUMBER, "brick": TEXT}],
    "not_measured": [TEXT],
}
"""The same for a prediction."""


def read(path: Path) -> dict[str, Any]:
    """Read a `profile.json` of trained steps. Raises `LogError` for anything else, or another version."""
    content = read_any(path)
    if content["of"] == "bricks":
        raise LogError(
            f"{path} is a prediction (--bricks), but only profiles of trained steps can be compared; "
            "profile without --bricks."
        )
    return content


def read_any(path: Path) -> dict[str, Any]:
    """Read a `profile.json` of trained steps (`of` is `ranks`) or of a prediction (`bricks`). Raises `LogError` for
    anything else, a damaged file, or another version."""
    if not path.is_file():
        raise RequestError(f"{path} does not exist; give a folder that train-bench profile has written.")
    content = files.read_json(path)
    if not isinstance(content, dict) or content.get("of") not in ("ranks", "bricks"):
        raise LogError(f"{path} is not a profile; give a folder that train-bench profile has written.")
    if content.get("version") != VERSION:
        raise LogError(
            f"{path} has profile version {content.get('version')}, but this train_bench reads {VERSION}. "
            "Profile again."
        )
    wrong = _wrong(content, FIELDS if content["of"] == "ranks" else PREDICTED)
    if wrong is not None:
        raise LogError(
            f"{path} is damaged: its field {wrong} is missing or has the wrong type. Profile again."
        )
    return content


def _wrong(value: Any, expected: Any, name: str = "") -> str | None:
    """First field that is missing or invalid; None if all are valid."""
    if isinstance(expected, tuple):
        return None if isinstance(value, expected) else name
    if not isinstance(value, type(expected)):
        return name
    if isinstance(expected, list):
        inside = [(one, expected[0], f"{name}[{at}]") for at, one in enumerate(value)]
    else:
        inside = [
            (value.get(key, ...), inner, f"{name}.{key}" if name else key) for key, inner in expected.items()
        ]
    return next((wrong for one in inside if (wrong := _wrong(*one)) is not None), None)


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of a step, before and after, in total, by part of the waterfall, module and operator; the largest growth
    first."""
    sides = (before, after)
    steps = [side["window"]["seconds"] / side["window"]["steps"] for side in sides]
    parts = _rows(sides, lambda side: {row["name"]: row["seconds"] for row in side["waterfall"]})
    layers = _rows(
        sides,
        lambda side: {
            layer["name"]: layer["window_forward_seconds"] + layer["window_backward_seconds"]
            for layer in side["layers"]
        },
    )
    operators = _rows(
        sides,
        lambda side: {f"{row['name']} ({row['phase']})": row["window_seconds"] for row in side["operators"]},
    )
    differ = [
        f"{key}: {before[key]} and {after[key]}"
        for key in ("benchmark", "launcher", "ranks", "threads_per_rank", "device", "precision")
        if before[key] != after[key]
    ]
    return {
        "version": VERSION,
        "of": "difference",
        "answer": {"sentence": _sentence(steps, parts, layers)},
        "differ": differ,
        "step_seconds": steps,
        "parts": parts,
        "layers": layers[:MOST_ROWS],
        "operators": operators[:MOST_ROWS],
    }


def _rows(sides: Any, seconds_of: Any) -> list[dict[str, Any]]:
    """Seconds of a step by name on either side, and the growth."""
    one, other = (
        {name: seconds / side["window"]["steps"] for name, seconds in seconds_of(side).items()}
        for side in sides
    )
    rows = [
        {"name": name, "before": one.get(name, 0.0), "after": other.get(name, 0.0)}
        for name in dict.fromkeys([*one, *other])
    ]
    rows = [row | {"grew": row["after"] - row["before"]} for row in rows]
    return sorted(rows, key=lambda row: -row["grew"])


def _sentence(steps: list[float], parts: list[dict[str, Any]], layers: list[dict[str, Any]]) -> str:
    change = steps[1] / steps[0] - 1
    if abs(change) < SAME:
        took = f"{steps[0] * 1000:.3g} and {steps[1] * 1000:.3g} ms"
        return f"A step takes as long as before ({took}, {100 * change:+.1f} %)."
    slower = change > 0
    part = parts[0] if slower else parts[-1]
    layer = layers[0] if slower else layers[-1]
    word = "longer" if slower else "less"
    return (
        f"A step takes {100 * abs(change):.0f} % {word} ({steps[0] * 1000:.3g} to {steps[1] * 1000:.3g} ms): the "
        f"largest part is {part['name']} ({part['grew'] * 1000:+.3g} ms); of the modules {layer['name']} "
        f"changed most ({layer['grew'] * 1000:+.3g} ms)."
    )
