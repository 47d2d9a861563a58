"""Allowed values of a benchmark in a round, as one object: rules, schedule, reference values and points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from train_bench.judge.rcp import Point, highest_mean, lowest_mean, used
from train_bench.rules.allowed import allowed_keys
from train_bench.rules.disclosures import DISCLOSURES
from train_bench.rules.ruleset import BenchmarkRules


def allowed_values(
    rules: BenchmarkRules, division: str, points: Sequence[Point], reference: Mapping[str, Any]
) -> dict[str, Any]:
    """Build the object that `rules --json` prints. `reference` holds the values of our reference's configuration;
    without one, a value that all reference points share."""
    batch_size = reference.get("global_batch_size")
    shared = {
        key: point.hyperparameters[key]
        for point in points[:1]
        for key in point.hyperparameters
        if all(other.hyperparameters.get(key) == point.hyperparameters[key] for other in points)
    }
    known = {**shared, **reference}
    keys = [
        asdict(key) | {"reference": known.get(key.key), "meaning": DISCLOSURES.get(key.key)}
        for key in allowed_keys(rules, division)
    ]
    return {
        "benchmark": rules.name,
        "ruleset": rules.ruleset,
        "division": division,
        "target": str(rules.target),
        "runs": rules.runs,
        "drop": rules.drop,
        "unit": rules.unit.value,
        "schedule": _schedule(rules, batch_size, points),
        "init_minutes": rules.init_minutes.get(division),
        "fixed_seeds_allowed": rules.fixed_seeds_allowed,
        "rcp_factor_applied": rules.factor_applied,
        "keys": keys,
        "rcp_level": rules.rcp_level,
        "rcp_pruned": rules.rcp_pruned,
        "reference_points": [_point(point, rules, compared=point in used(points, rules)) for point in points],
        "errata": [{"id": erratum.id, "why": erratum.why} for erratum in rules.errata],
    }


def _schedule(rules: BenchmarkRules, batch_size: int | None, points: Sequence[Point]) -> str | None:
    """Evaluation schedule in words, at the reference's batch size, else at that of the smallest reference point."""
    size = batch_size or (points[0].batch_size if points else None)
    due = rules.schedule_at(size)
    if due is None:
        return None
    other = rules.schedule_at(7 * size) if size else None
    return f"{due} (at a global batch size of {size})" if other != due else str(due)


def _point(point: Point, rules: BenchmarkRules, *, compared: bool) -> dict[str, Any]:
    n_reference = point.count - 2 * rules.drop
    return asdict(point) | {
        "bound": lowest_mean(point, n_reference, rules),
        "upper_bound": highest_mean(point, n_reference, rules),
        "used": compared,
    }
