"""Two profiles: what got slower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench import files
from train_bench.errors import LogError, RequestError
from train_bench.profile.document import VERSION

SAME = 0.05
"""A change of less than this of the window is not told."""

MOST = 20


def read(path: Path) -> dict[str, Any]:
    """A `profile.json`. Raises `LogError` for what is none, or one of another version."""
    if not path.is_file():
        raise RequestError(f"There is no {path}; give a folder that train-bench profile has written.")
    content = files.read_json(path)
    if not isinstance(content, dict) or content.get("of") != "ranks" or "waterfall" not in content:
        raise LogError(f"{path} is no profile; give a folder that train-bench profile has written.")
    if content.get("version") != VERSION:
        raise LogError(
            f"{path} has version {content.get('version')} of a profile; this train_bench reads {VERSION}. Profile anew."
        )
    return content


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of a step, before and after, in all, by part of the waterfall, module and operator; what grew most comes
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
        "layers": layers[:MOST],
        "operators": operators[:MOST],
    }


def _rows(sides: Any, seconds_of: Any) -> list[dict[str, Any]]:
    """By name the seconds of a step on either side, and by how much they grew."""
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
        return f"A step takes as long as before ({steps[0] * 1000:.3g} and {steps[1] * 1000:.3g} ms, {change:+.1%})."
    slower = change > 0
    part = parts[0] if slower else parts[-1]
    layer = layers[0] if slower else layers[-1]
    word = "longer" if slower else "less"
    return (
        f"A step takes {abs(change):.0%} {word} ({steps[0] * 1000:.3g} to {steps[1] * 1000:.3g} ms): most of it is "
        f"{part['name']} ({part['grew'] * 1000:+.3g} ms); of the modules {layer['name']} changed most "
        f"({layer['grew'] * 1000:+.3g} ms)."
    )
