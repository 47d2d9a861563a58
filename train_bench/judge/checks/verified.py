"""Results of `train-bench verify` next to a log: the re-evaluated weights of a run have its logged quality.

A result counts only for the log that it names; that log has the digests of the weights. Whether the qualities agree is
computed again, from those of the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.logs.record import RunRecord
from train_bench.quality import Target

TOLERANCE = 1e-5
"""Default of `verify --tolerance`, the largest difference of a metric from the logged one: see decision 0114."""

LARGEST_TOLERANCE = 1e-3
"""Difference beyond which two qualities never agree, whatever a file states: one sample of a thousand that another
device decides otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result for a run: metrics as its log has them and as they were `found` in its weights, the largest `difference`
    of both (None without a number for each), the `tolerance` that was asked for, and whether they `agree`."""

    logged: Mapping[str, float]
    found: Mapping[str, Any]
    difference: float | None
    tolerance: float
    agree: bool

    @property
    def bound(self) -> float:
        """Tolerance as far as it counts."""
        return min(self.tolerance, LARGEST_TOLERANCE)


def path_of(log: Path) -> Path:
    """`verified_N.json` next to `result_N.txt`."""
    return log.with_name(f"verified_{log.stem.removeprefix('result_')}.json")


def verification_of(record: RunRecord, target: Target) -> Verification | None:
    """Result for this very run; None if it was not verified."""
    result = files.read_object(path_of(Path(record.file)))
    tolerance = finite_number(result.get("tolerance"))
    known = tolerance is not None and tolerance >= 0 and isinstance(result.get("agree"), bool)
    if tolerance is None or not known or result.get("log") != record.sha256:
        return None
    logged = target.quality_of(record.quality).metrics
    found = result.get("found")
    found = found if isinstance(found, Mapping) else {}
    difference = _difference(logged, found)
    agree = difference is not None and difference <= min(tolerance, LARGEST_TOLERANCE)
    return Verification(
        logged=logged,
        found=found,
        difference=difference,
        tolerance=tolerance,
        agree=agree and result["agree"],
    )


def _difference(logged: Mapping[str, float], found: Mapping[str, Any]) -> float | None:
    numbers = {name: finite_number(found.get(name)) for name in logged}
    differences = [
        abs(value - number) for name, value in logged.items() if (number := numbers[name]) is not None
    ]
    whole = len(differences) == len(logged) > 0 and all(map(math.isfinite, differences))
    return max(differences) if whole else None


def check_kept_weights(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """Kept weights whose quality differs when they are evaluated again, and a tolerance above the default."""
    rules = case.rules
    one = verification_of(record, rules.target)
    if one is None:
        return
    if not one.agree:
        message = (
            "The kept weights do not have the logged quality: train-bench verify measured "
            f"{dict(one.found)!s:.200}, the log has {dict(one.logged)} (tolerance {one.bound:g})."
        )
        yield finding(record, rules, "verified", message)
    elif one.tolerance > TOLERANCE:
        message = (
            f"The kept weights were verified within {one.tolerance:g}; the default of train-bench verify is "
            f"{TOLERANCE:g}, and the largest difference is {one.difference:.2g}. Verify again without --tolerance."
        )
        yield finding(record, rules, "verified", message, value=one.tolerance, grade=REVIEW)


def in_a_sentence(records: Sequence[RunRecord], target: Target) -> str | None:
    """Number of runs with verified quality, as a sentence; None without any."""
    agreeing = [
        one for record in records if (one := verification_of(record, target)) is not None and one.agree
    ]
    if not agreeing:
        return None
    return (
        f"quality verified: {len(agreeing)} of {len(records)} runs, by re-evaluating their kept weights "
        f"(tolerance {max(one.bound for one in agreeing):g})"
    )
