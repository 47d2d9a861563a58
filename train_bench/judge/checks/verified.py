"""Results of `train-bench verify` beside a log: the weights of a run, evaluated again, have its quality.

A result counts only for the log that it names; that log has the digests of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.errors import LogError
from train_bench.logs.record import LARGEST, RunRecord


def path_of(log: Path) -> Path:
    """`verified_N.json` beside `result_N.txt`."""
    return log.with_name(f"verified_{log.stem.removeprefix('result_')}.json")


def found(record: RunRecord) -> Mapping[str, Any]:
    """Result for this very run, empty if it was not verified: whether both qualities `agree`, and within which
    `tolerance`."""
    try:
        told = files.read_json(path_of(Path(record.file)))
    except LogError:
        return {}
    if not isinstance(told, Mapping) or told.get("log") != record.sha256:
        return {}
    tolerance = told.get("tolerance")
    known = isinstance(tolerance, (int, float)) and 0 <= tolerance < LARGEST
    return told if known and isinstance(told.get("agree"), bool) else {}


def in_a_sentence(records: Sequence[RunRecord]) -> str | None:
    """Number of runs with verified quality, as a sentence; None without any."""
    agreeing = [told["tolerance"] for told in map(found, records) if told and told["agree"]]
    if not agreeing:
        return None
    return (
        f"quality verified: {len(agreeing)} of {len(records)} runs, by evaluating their kept weights again (within "
        f"{max(agreeing):g})"
    )
