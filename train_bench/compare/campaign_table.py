"""Table of many campaigns: each against the first or the fastest one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from train_bench.compare import comparison, gate, independence
from train_bench.compare.comparison import Comparison
from train_bench.compare.design import History, no_history
from train_bench.compare.differences import Difference, find_differences
from train_bench.errors import RequestError
from train_bench.judge.entry import Judgement

FIRST, BEST = "first", "best"
BASELINES = (FIRST, BEST)
"""Campaigns that the others are compared with."""

BASELINE, NOT_COMPARED = "baseline", "not compared"
"""Verdicts of a row beside those of a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A campaign in a table. `label` is its letter in the order given, `minutes` the geometric mean of its runs that
    count, `failed` how many runs ended without a time, `disturbed` the sentence of its score, `differences` those from
    the baseline (None if unknown), `comparison` that with the baseline, with the `error` that prevented it where there
    is none. `same_logs` are labels of campaigns before it and how many logs it has in common with each."""

    label: str
    name: str
    began: str | None
    minutes: float | None
    valid: bool | None
    state: str
    verdict: str
    failed: int = 0
    disturbed: str | None = None
    differences: tuple[Difference, ...] | None = None
    comparison: Comparison | None = None
    error: RequestError | None = None
    same_logs: tuple[tuple[str, int], ...] = ()

    @property
    def ratio(self) -> tuple[float, float, float] | None:
        """Time of this campaign over that of the baseline, and the ends of its 95 % confidence interval."""
        if self.comparison is None:
            return None
        speedup = self.comparison.speedup
        return 1 / speedup.value, 1 / speedup.high, 1 / speedup.low

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        ratio = dict(zip(("value", "low", "high"), self.ratio, strict=True)) if self.ratio else None
        return {
            "label": self.label,
            "name": self.name,
            "began": self.began,
            "minutes": self.minutes,
            "valid": self.valid,
            "state": self.state,
            "differences": None
            if self.differences is None
            else [difference.as_json() for difference in self.differences],
            "ratio": ratio,
            "verdict": self.verdict,
            "undecided_because": None if self.comparison is None else self.comparison.verdict.reason,
            "failed": self.failed,
            "disturbed": self.disturbed,
            "reason": None if self.error is None else str(self.error),
            "same_logs": [{"label": label, "logs": logs} for label, logs in self.same_logs],
        }


def label_of(at: int) -> str:
    """Letter of a campaign by its place from 0: A to Z, then AA, AB, ..."""
    letters = ""
    at += 1
    while at:
        at, letter = divmod(at - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def make_rows(
    names: Sequence[str], judged: Sequence[Judgement], baseline: str = FIRST, history: History = no_history
) -> list[Row]:
    """Rows in the order given. A campaign that cannot be compared is a row with the reason. Raises the first reason
    as `RequestError` if none can."""
    rows = [_alone(at, name, one) for at, (name, one) in enumerate(zip(names, judged, strict=True))]
    base = _fastest(rows, judged) if baseline == BEST else 0
    compared = [
        replace(row, verdict=BASELINE, differences=())
        if at == base
        else _against(row, one, rows[base], judged[base], history)
        for at, (row, one) in enumerate(zip(rows, judged, strict=True))
    ]
    errors = [row.error for row in compared if row.error is not None]
    if len(errors) == len(compared) - 1 and errors:
        raise errors[0]
    return _with_same_logs(compared, judged)


def began(judged: Judgement) -> str | None:
    """Date and time of the first run in UTC, to the minute; None if no log has a time."""
    try:
        at = datetime.fromtimestamp(gate.started_ms(judged) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return at.strftime("%Y-%m-%d %H:%M") if gate.started_ms(judged) else None


def _alone(at: int, name: str, judged: Judgement) -> Row:
    logs = comparison.logs_of(comparison.usable(judged.score), "minutes")
    return Row(
        label=label_of(at),
        name=name,
        began=began(judged),
        minutes=math.exp(statistics.fmean(logs)) if logs else None,
        valid=judged.score.valid,
        state=judged.score.state,
        verdict=NOT_COMPARED,
        failed=len(comparison.failures(judged.score)),
        disturbed=judged.score.disturbed,
    )


def _fastest(rows: Sequence[Row], judged: Sequence[Judgement]) -> int:
    """The fastest of the campaigns of the first one's task; a mean of fewer than three runs is none."""
    task = (judged[0].score.benchmark, judged[0].score.target, judged[0].score.division)
    known = [
        (row.minutes, at)
        for at, (row, one) in enumerate(zip(rows, judged, strict=True))
        if row.minutes is not None
        and len(comparison.usable(one.score)) >= comparison.LEAST_RUNS
        and (one.score.benchmark, one.score.target, one.score.division) == task
    ]
    return min(known, default=(0.0, 0))[1]


def _against(row: Row, judged: Judgement, base: Row, of_base: Judgement, history: History) -> Row:
    """The row, compared with the baseline, or with the error that prevents it."""
    row = replace(row, differences=find_differences(of_base, judged))
    try:
        compared = comparison.compare_campaigns(base.name, of_base, row.name, judged, history)
    except RequestError as error:
        return replace(row, error=error)
    return replace(row, comparison=compared, verdict=compared.verdict.word)


def _with_same_logs(rows: Sequence[Row], judged: Sequence[Judgement]) -> list[Row]:
    """Rows with the logs that each has in common with earlier ones."""
    first: dict[str, str] = {}
    marked = []
    for row, one in zip(rows, judged, strict=True):
        common: dict[str, int] = {}
        for run in one.score.runs:
            labels = {first.setdefault(digest, row.label) for digest in independence.digests(run)} - {
                row.label
            }
            for label in sorted(labels)[:1]:  # its bytes and its times may be those of two campaigns
                common[label] = common.get(label, 0) + 1
        marked.append(replace(row, same_logs=tuple(sorted(common.items()))))
    return marked
