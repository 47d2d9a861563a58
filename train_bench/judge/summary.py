"""Summary of many scores: normalised to reference results, and as one custom summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.judge.score import Score
from train_bench.judge.statistics import weighted_geometric_mean

LONGEST_MINUTES = 1e12
"""Limit of a reference result: two million years, far from where quotients of times stop being numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Weighted geometric mean of the results of all entries; None if one has no score. `of` is the averaged
    quantity: `minutes` (lower is better) or `normalised` results (reference / score, higher is better)."""

    of: str
    value: float | None
    weights: Mapping[str, float]


def read_reference_results(path: Path) -> dict[str, float]:
    """Read a JSON object of benchmark -> minutes, to normalise results. No official ones exist for these rounds, so
    they are the user's."""
    content = files.read_json(path)
    if not isinstance(content, dict) or not all(_is_a_time(value) for value in content.values()):
        raise RequestError(
            f"{path} is not a JSON object of benchmark names and positive minutes (below "
            f"{LONGEST_MINUTES:g})."
        )
    return {str(name): float(minutes) for name, minutes in content.items()}


def read_weights(text: str) -> dict[str, float]:
    """Parse `resnet=2,bert=1` as weights by benchmark; an empty text weighs all alike."""
    weights = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        if name.strip() in weights:
            raise RequestError(f"{name.strip()} has two weights; give one.")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            raise RequestError(
                f"'{part}' is not a weight; write BENCHMARK=NUMBER,..., for example resnet=2,bert=1."
            ) from None
        if not 0 < weights[name.strip()] < math.inf:
            raise RequestError(f"The weight of {name} is {number}; it has to be a positive, finite number.")
    return weights


def normalised(score: Score, reference: Mapping[str, float]) -> float | None:
    """reference / score; None if either is missing (rules, "Benchmark results")."""
    minutes = reference.get(score.benchmark)
    return None if minutes is None or not score.score_minutes else minutes / score.score_minutes


def custom_summary(
    scores: Sequence[Score], weights: Mapping[str, float], reference: Mapping[str, float] | None
) -> Summary:
    """One number over a set of entries: their results weighed by benchmark (all alike without weights)."""
    unknown = set(weights) - {score.benchmark for score in scores}
    if unknown:
        raise RequestError(
            f"The weights name {', '.join(sorted(unknown))}, of which there is no entry; leave it out."
        )
    chosen = [score for score in scores if not weights or score.benchmark in weights]
    results = [score.score_minutes if reference is None else normalised(score, reference) for score in chosen]
    known = [result for result in results if result]
    applied = [weights.get(score.benchmark, 1.0) for score in chosen]
    complete = bool(known) and len(known) == len(results)
    return Summary(
        of="minutes" if reference is None else "normalised",
        value=weighted_geometric_mean(known, applied) if complete else None,
        weights={score.benchmark: weights.get(score.benchmark, 1.0) for score in chosen},
    )


def _is_a_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LONGEST_MINUTES
