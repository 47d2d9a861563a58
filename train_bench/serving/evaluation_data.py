"""Evaluation data of a run, as its log names them (`data_fingerprint`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.samples import COMMON_BOUND, DATA
from train_bench.logs.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationData:
    """Digest of the evaluation set, and how many of its `compared` samples are training samples; None where the log
    has no such value."""

    digest: str | None = None
    common: int | None = None
    compared: int | None = None

    @property
    def overlaps(self) -> bool:
        """True if more samples than `COMMON_BOUND` are training samples."""
        known = self.common is not None and self.compared is not None
        return known and (self.common or 0) > COMMON_BOUND * (self.compared or 0)


def read(log: Log) -> EvaluationData:
    """Evaluation data by the first fingerprint of a log, whatever stands there."""
    logged = next((event.value for event in log.events if event.key == DATA), None)
    evaluation = logged.get("evaluation") if isinstance(logged, Mapping) else None
    if not isinstance(logged, Mapping) or not isinstance(evaluation, Mapping):
        return EvaluationData()
    digest = evaluation.get("digest")
    return EvaluationData(
        digest=digest if isinstance(digest, str) else None,
        common=_count(logged.get("samples_in_common")),
        compared=_count(evaluation.get("compared")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and finite_number(value) is not None else None
