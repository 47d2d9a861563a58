"""Judgement of one LoadGen test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from train_bench.judge.finding import BREAKS, Finding
from train_bench.serving.loadgen_log import METRICS, PERFORMANCE
from train_bench.serving.loadgen_verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TestJudgement:
    """Judgement of one test. `loadgen` is the verdict of its own log, `trace` the recomputed one, `official` has the
    reasons for which the official submission checker refuses it (none: it accepts); None where there is none. `value`
    is the metric of the scenario, by the trace or, without one, as logged."""

    file: str
    scenario: str
    mode: str
    model: str | None
    loadgen: str | None
    trace: Verdict | None
    official: tuple[str, ...] | None
    value: float | None
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """True if no rule is broken."""
        return all(finding.grade != BREAKS for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        trace = self.trace
        return {
            "file": self.file,
            "scenario": self.scenario,
            "mode": self.mode,
            "model": self.model,
            "valid": self.valid,
            "metric": METRICS[self.scenario] if self.mode == PERFORMANCE else None,
            "value": self.value,
            "queries": None if trace is None else trace.queries,
            "seconds": None if trace is None else trace.seconds,
            "loadgen": self.loadgen,
            "trace": None if trace is None else trace.results["result_validity"],
            "official": None
            if self.official is None
            else {"accepted": not self.official, "reasons": [*self.official]},
            "findings": [finding.as_json() for finding in self.findings],
        }
