"""Samples per second against physics: FLOP of a sample, as `plan --dry` counts them, over the peak of the system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train_bench.core.digits import significant
from train_bench.core.job import jobs_of
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.submission import accelerators_of
from train_bench.judge.checks.unverifiable import ran_as
from train_bench.judge.finding import Finding, file_finding
from train_bench.judge.published import hardware, published_entries
from train_bench.logs.record import RunRecord
from train_bench.rules.ruleset import BenchmarkRules

SLACK = 1.5
"""Factor above the peak from which a question is asked. Of the table of published entries none does more than 0.52
of it, and of later ones 0.72 (llama31_405b, trained in 4 bits; the peak is that of 8)."""


def check_physics(case: EntryCase) -> Iterator[Finding]:
    """Question about an entry of which a run does more FLOP a second than its system can; none where the FLOP of a
    sample or the peak of the system are unknown, for another network than the benchmark's, and in the open division."""
    known = hardware.flop_per_sample(case.rules)
    if known is None or not case.closed or case.location.plan_or_package.get("changes"):
        return
    flop, format_ = known
    speeds = [(_speed(record, case.rules) or 0.0, Path(record.file).name) for record in case.records]
    fastest, file = max(speeds, default=(0.0, ""))
    system = _peak(case, format_) if fastest else None
    if system is None:
        return
    peak, name = system
    if fastest * flop <= SLACK * peak:
        return
    own, limit = significant(fastest * flop / 1e12, peak / 1e12)
    message = (
        f"{file} takes {fastest:.4g} samples/s. At {flop / 1e9:.4g} GFLOP a sample these are {own} TFLOP/s; {name} "
        f"can do {limit} at most. Are the times, the samples and the system right?"
    )
    yield file_finding(case.folder, "physics", message, value=round(fastest * flop / peak, 4))


def _speed(record: RunRecord, rules: BenchmarkRules) -> float | None:
    """Samples per second of a converged run; one that took no time counts as a millisecond."""
    samples = published_entries.samples_of(record, rules)
    if samples is None or record.minutes is None or record.minutes < 0:
        return None
    return samples / max(record.minutes * 60, 0.001)


def _peak(case: EntryCase, format_: str) -> tuple[float, str] | None:
    """Peak of the system in FLOP/s, and its name; None if it is unknown."""
    if not jobs_of(case.location.plan):
        count, name = accelerators_of(case.location)
        return None if not count or name is None else _of_accelerators(count, name, format_)
    return _of_campaign(case, case.location.machine, format_)


def _of_campaign(case: EntryCase, machine: Mapping[str, Any], format_: str) -> tuple[float, str] | None:
    """Peak of the hosts of a campaign, all like the one that is described; what a program says of itself counts."""
    job: Mapping[str, Any] = jobs_of(case.location.plan)[0]
    ran = {field: ran_as(case.programs, field) for field in ("ranks", "hosts", "devices", "precision")}
    precision = ran["precision"] if case.location.runs_command else job.get("precision")
    device = str(ran["devices"] if case.location.runs_command else job.get("device"))
    hosts = ran["hosts"] or job.get("nodes")
    names, cores = machine.get("accelerators"), machine.get("cores")
    if not isinstance(hosts, int) or hosts < 1 or not isinstance(names, list):
        return None
    if names and not device.startswith("cpu"):
        ranks = ran["ranks"] or case.world_size or 0
        count = max(hosts * len(names), ranks)
        of_precision = hardware.BF16 if precision in ("fp32", "bf16", "fp16") else format_
        return _of_accelerators(count, str(names[0]), of_precision) if len({*map(str, names)}) == 1 else None
    if not isinstance(cores, int) or cores < 1:
        return None
    said = "1 core" if hosts * cores == 1 else f"{hosts * cores} cores"
    return hosts * cores * hardware.core_peak(precision), f"{said} of any processor"


def _of_accelerators(count: int, name: str, format_: str) -> tuple[float, str] | None:
    peak = hardware.accelerator_peak(name, format_)
    return None if peak is None else (count * peak, f"{count} x {name}")
