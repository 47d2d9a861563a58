"""Results of `train-bench verify` next to a log: the re-evaluated weights of a run have its logged quality.

A result counts only for the log that it names; that log has the digests of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.finite_number import finite_number
from train_bench.errors import LogError
from train_bench.logs.record import RunRecord

TOLERANCE = 1e-5
"""Default of `verify --tolerance`, the largest difference of a metric from the logged one: see decision 0114."""


def path_of(log: Path) -> Path:
    """`verified_N.json` next to `result_N.txt`."""
    return log.with_name(f"verified_{log.stem.removeprefix('result_')}.json")


def found(record: RunRecord) -> Mapping[str, Any]:
    """Result for this very run, empty if it was not verified: whether both qualities `agree`, and within which
    `tolerance`."""
    try:
        result = files.read_json(path_of(Path(record.file)))
    except LogError:
        return {}
    if not isinstance(result, Mapping) or result.get("log") != record.sha256:
        return {}
    tolerance = finite_number(result.get("tolerance"))
    known = tolerance is not None and tolerance >= 0 and isinstance(result.get("agree"), bool)
    return result if known else {}


def in_a_sentence(records: Sequence[RunRecord]) -> str | None:
    """Number of runs with verified quality, as a sentence; None without any."""
    agreeing = [result["tolerance"] for result in map(found, records) if result and result["agree"]]
    if not agreeing:
        return None
    return (
        f"quality verified: {len(agreeing)} of {len(records)} runs, by re-evaluating their kept weights "
        f"(tolerance {max(agreeing):g})"
    )
