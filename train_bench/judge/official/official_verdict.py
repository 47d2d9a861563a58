"""Official verdict: our implementation of the official tools' decision on an entry, without errata and our own checks.

The package checker checks two conditions: the files comply, apart from those that may be dropped, and, in the closed
division, every run has a seed of its own and the entry passes the RCP test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from train_bench.judge import rcp
from train_bench.judge.compliance import RunVerdict
from train_bench.judge.rcp import RcpVerdict
from train_bench.logs.record import SUCCESS, RunRecord
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialVerdict:
    """`refused` files are not accepted by the compliance checker; `accepted` is the verdict of the package
    checker, None where it crashes or does not know the round."""

    accepted: bool | None
    refused: tuple[str, ...]
    rcp: RcpVerdict
    reasons: tuple[str, ...]


def official_verdict(
    records: Sequence[RunRecord],
    verdicts: Sequence[RunVerdict],
    rules: BenchmarkRules,
    *,
    closed: bool,
    weak: bool = False,
) -> OfficialVerdict:
    """Judge an entry as the tools do. With `weak` scaling they accept more runs than required. They compare open
    entries with reference points, too, on request, but accept them whatever the result."""
    refused = tuple(
        record.file
        for record, verdict in zip(records, verdicts, strict=True)
        if not verdict.officially_compliant
    )
    if rules.strict:
        unknown = RcpVerdict(
            verdict=rcp.NONE, message=f"the official tools do not know {rules.ruleset}", factor=None
        )
        return OfficialVerdict(accepted=None, refused=refused, rcp=unknown, reasons=(unknown.message,))
    compared = rcp.official_verdict(
        rules, [record.global_batch_size for record in records], [_convergence(record) for record in records]
    )
    reasons = []
    if len(records) < rules.runs or (len(records) > rules.runs and not weak):
        reasons.append(f"{len(records)} file(s), {rules.runs} expected")
    if len(refused) > rules.drop:
        reasons.append(f"{len(refused)} file(s) do not comply, {rules.drop} may")
    if closed:
        reasons += seed_problems(records)
        skipped = not rcp.official(rules) and compared.verdict == rcp.CRASH
        if compared.verdict == rcp.FAIL:
            reasons.append(f"RCP test failed: {compared.message}")
        elif compared.verdict == rcp.CRASH and not skipped:
            return OfficialVerdict(accepted=None, refused=refused, rcp=compared, reasons=(compared.message,))
    return OfficialVerdict(accepted=not reasons, refused=refused, rcp=compared, reasons=tuple(reasons))


def _convergence(record: RunRecord) -> float | None:
    """Convergence by the tools: the last evaluation's position; its `epoch_num` by default."""
    if record.status != SUCCESS:
        return None
    if record.counted == "train_samples":
        last = record.evaluations[-1].position if record.evaluations else None
        return None if last is None else round(last, 3)
    return record.convergence


def seed_problems(records: Sequence[RunRecord]) -> list[str]:
    """Objections of the seed checker: a log without a seed, a seed that two logs have from one source line."""
    reasons = [f"{record.file} logs no seed" for record in records if not record.seeds][:1]
    seen: set[tuple[str, int, int]] = set()
    for record in records:
        if seen & set(record.seeds):
            reasons.append(f"{record.file} logs a seed that another file logs on the same source line")
            break
        seen |= set(record.seeds)
    return reasons
