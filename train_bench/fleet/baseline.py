"""Baseline for later acceptances: usual values per machine type, read from an acceptance's JSON file, which is
untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain_value
from train_bench.errors import RequestError
from train_bench.fleet.observations import LARGEST_RATE, hashable
from train_bench.fleet.verdict import Known, Type


def as_json(kind: Type) -> dict[str, Any]:
    """A type's object in `types` of the file."""
    usual, outcome = kind.usual, kind.outcome
    return {
        "name": kind.name,
        "nodes": list(kind.nodes),
        "pace": None if usual is None else usual.centre,
        "noise": None if usual is None else usual.noise,
        "longest": None if usual is None else usual.bound,
        "versions": kind.versions,
        "accelerators": kind.rates,
        "outcome": None
        if outcome is None
        else {"order": outcome[0], "evaluations": outcome[1], "weights": outcome[2]},
    }


def read(path: Path, digest: str) -> dict[str, Known]:
    """Read the baseline by machine type. Raises `LogError` or `RequestError` if the file is not of an acceptance, or of
    another training than that of this `digest`."""
    content = plain_value(files.read_json(path))
    job, types = (content.get("job"), content.get("types")) if isinstance(content, dict) else (None, None)
    if not isinstance(job, dict) or not isinstance(types, list):
        raise RequestError(
            f"{path} is not a file of train-bench accept; give the accept.json of an acceptance."
        )
    if job.get("digest") != digest:
        raise RequestError(
            f"{path} is of another job ({str(job.get('words'))[:300]}); give the same benchmark and "
            "options, or leave --against out."
        )
    try:
        return {str(kind["name"]): _known(kind) for kind in types if kind["pace"] is not None}
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"{path} is damaged: its machine types are invalid; give the accept.json of an acceptance."
        ) from error


def _known(kind: Mapping[str, Any]) -> Known:
    pace, noise, outcome = float(kind["pace"]), float(kind["noise"]), kind["outcome"]
    if not 0 < pace < 1e9 or not 0 < noise < 10:
        raise ValueError("no times")
    if outcome is not None and not isinstance(outcome["evaluations"], list):
        raise TypeError("no evaluations")
    rates = {
        str(name): {str(figure): float(rate) for figure, rate in of_name.items()}
        for name, of_name in kind.get("accelerators", {}).items()
    }
    if not all(0 < rate < LARGEST_RATE for of_name in rates.values() for rate in of_name.values()):
        raise ValueError("no rates")
    return Known(
        pace=pace,
        rates=rates,
        noise=noise,
        versions={str(name): str(value) for name, value in kind["versions"].items()},
        outcome=None
        if outcome is None
        else (outcome["order"], hashable(outcome["evaluations"]), outcome["weights"]),
    )
