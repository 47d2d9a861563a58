"""Waits of ranks for their data, beside the loader processes that they had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from train_bench.core.digits import distinct
from train_bench.core.job import RANK_CORES
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import count, mapping
from train_bench.judge.finding import Finding, file_finding
from train_bench.logs.record import DATA_WAIT, RunRecord

MOST_WAITED = 0.1
"""Share of the time on the clock above which waits for data are for review."""


def check_data_wait(case: EntryCase) -> Iterator[Finding]:
    """Runs of which a rank waited long for its data, and the reason: the loader processes that it had, and what they
    gave. On a CPU without such processes training makes its batches itself, and waits for nobody."""
    machine = case.location.machine
    used = mapping(machine.get(RANK_CORES))
    cores, processes = count(used.get("cores")), count(used.get("loader_processes"))
    if not cores or not (processes or machine.get("accelerators")):
        return
    long = [(share, record) for record in case.records if (share := _share(record)) > MOST_WAITED]
    if not long:
        return
    share, record = max(long, key=lambda one: one[0])
    waited, limit = distinct(100 * share, 100 * MOST_WAITED, decimals=0)
    message = (
        f"In {len(long)} of {len(case.records)} runs a rank waited for data for more than {limit} % of the time, in "
        f"{Path(record.file).name} for {waited} % ({(record.data_wait_ms or 0) / 1000:.4g} of "
        f"{60 * (record.minutes or 0):.4g} s). {_reason(processes, cores)}{_given(record, share)} "
        f"{_next_step(processes, cores)}"
    )
    yield file_finding(case.folder, DATA_WAIT, message, key=DATA_WAIT, value=round(share, 4))


def _share(record: RunRecord) -> float:
    if record.data_wait_ms is None or not record.minutes or record.minutes < 0:
        return 0.0
    return record.data_wait_ms / (60_000 * record.minutes)


def _reason(processes: int, cores: int) -> str:
    if not processes:
        return f"It had no loader processes on {cores} core(s), so that training made its own batches"
    return f"It had {processes} loader process(es) on {cores} core(s)"


def _given(record: RunRecord, share: float) -> str:
    """Samples a second of all ranks as they were, and as they would be without the wait."""
    speed = record.samples_per_second
    if not speed or share >= 1:
        return "."
    return f"; the run took {speed:.3g} samples/s, and would have taken up to {speed / (1 - share):.3g} without waits."


def _next_step(processes: int, cores: int) -> str:
    if processes < cores - 1:
        return f"benchmark.data.workers={cores - 1} would use its cores."
    return "Its cores were in use: more cores for a rank, or data that cost less to read, would shorten it."
