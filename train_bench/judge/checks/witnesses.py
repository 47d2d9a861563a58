"""The clock of a run against its witnesses: the monotonic clock of the ranks (`processor_wait`), and that of the
launching process, in the record of the attempt. The log was written by neither of them. The kernel's account in the
same line is a third: processors do not run longer than the window.

No tolerance here depends on what the judged files state, such as a busy machine: it is a constant, or a bound that the
plan and the system give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from train_bench.core.finite_number import finite_number
from train_bench.core.lost_share import lost_share
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase, LogCase, ProgramFacts
from train_bench.judge.checks.planned import count, mapping
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.logs.record import PROCESSOR_WAIT, RunRecord

CLOCK = "clock"

RANKS_SECONDS = 1.0
"""Time that ranks take around the clock to read that of their processors."""

PARENT_SECONDS = 2.5
"""Time that the launching process takes to see a line."""

BUSY = 4.0
"""Factor by which a busy machine may stretch these times: up to it the difference is a question, beyond it the log is
wrong."""

STATED = 0.02
"""Share of processor time by which a stated loss may differ from the one that its own line gives."""

PROCESSOR_SECONDS = 1.0
"""Seconds by which two readings of one processor's account may be apart from the clock."""

SUSPENDED_SECONDS = 0.5
"""Two clocks that are read one after the other differ by microseconds."""

LARGEST_SECONDS = 1e12
"""No run takes as long; larger numbers measure nothing."""

SHARE = 0.05
"""Share of a run by which two clocks may differ besides."""


def check_rank_clock(case: LogCase) -> Iterator[Finding]:
    """The window of the log against the ranks' monotonic clock. A run that started again has this clock of its last
    start alone, which may only be shorter."""
    record, rules = case.as_logged[0], case.rules
    for event in case.log.events.of(PROCESSOR_WAIT):
        waited = event.value if isinstance(event.value, Mapping) else {}
        seconds = finite_number(waited.get("seconds"), below=LARGEST_SECONDS)
        if seconds is None or record.minutes is None:
            continue
        if seconds > _longest(record, RANKS_SECONDS):
            message, grade = _contradiction(
                record, seconds, RANKS_SECONDS, f"its ranks measured {seconds:.1f} s ({PROCESSOR_WAIT})"
            )
            yield finding(
                record, rules, CLOCK, message, line=event.line, key=event.key, value=seconds, grade=grade
            )
        elif (due := _lost(waited)) is not None and abs(due[0] - due[1]) > STATED:
            stated, given = due
            message = (
                f"{PROCESSOR_WAIT} says that other processes took {100 * stated:.1f} % of the ranks' CPU demand, and "
                f"its own counters give {100 * given:.1f} %; the line was edited."
            )
            yield finding(record, rules, CLOCK, message, line=event.line, key=event.key, value=stated)


def check_parent_clock(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The window of the log against the clock of the launching process, in the last attempt at the run."""
    attempts = attempts_at(case.location, record.index)
    if not attempts or record.minutes is None:
        return
    seconds = finite_number(attempts[-1].get("clock_seconds"), below=LARGEST_SECONDS)
    if seconds is not None and seconds > _longest(record, PARENT_SECONDS):
        message, grade = _contradiction(
            record,
            seconds,
            PARENT_SECONDS,
            f"the launching process saw {seconds:.1f} s from run_start to run_stop",
        )
        yield finding(record, case.rules, CLOCK, message, value=seconds, grade=grade)


def check_suspension(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """A machine that was suspended between the first `run_start` and the last `run_stop`, in the last attempt at the
    run: the monotonic clock, by which the log is written, stands still then."""
    attempts = attempts_at(case.location, record.index)
    seconds = (
        finite_number(attempts[-1].get("suspended_seconds"), below=LARGEST_SECONDS) if attempts else None
    )
    if seconds is not None and seconds > SUSPENDED_SECONDS:
        message = (
            f"The machine was suspended for {seconds:.0f} s between run_start and run_stop, which the clock of the log "
            "leaves out: the run took so much longer than its time says. Repeat it with suspension off "
            "(systemd-inhibit train-bench run ...)."
        )
        yield finding(record, case.rules, "suspended", message, value=seconds, grade=REVIEW)


def check_processor_account(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """The window of the log against the kernel's account of one machine: all processes ran no longer than its
    processors, and the ranks of a reference on a CPU no longer than their threads, which is a question, since a library
    may start others."""
    facts = case.program_of(record)
    if facts is None or facts.ran is None or not record.minutes or record.minutes < 0:
        return
    cores, threads = _processors(case, facts)
    window = record.minutes * 60 * (1 + SHARE) + PROCESSOR_SECONDS
    for ran, most, who, what, asks in (
        (facts.ran + (facts.others or 0.0), cores, "all processes of its machine", "core", False),
        (facts.ran, threads, "its ranks", "thread", True),
    ):
        if most is not None and ran > most * window:
            message = (
                f"The log says that the clock ran {record.minutes * 60:.1f} s, but {who} used {ran:.1f} s of processor "
                f"time on it ({PROCESSOR_WAIT}), more than {most} {what}{'' if most == 1 else 's'} can; "
            )
            message += "are its times too short?" if asks else "its times are wrong."
            grade = REVIEW if asks else None
            yield finding(record, case.rules, CLOCK, message, key=PROCESSOR_WAIT, value=ran, grade=grade)
            return


def _processors(case: EntryCase, facts: ProgramFacts) -> tuple[int | None, int | None]:
    """Cores of a machine that its ranks may use, at most, and threads of all ranks of a reference on a CPU; None if
    unknown. The system describes the cores of one rank, and ranks may have cores of their own."""
    job = next(iter(case.planned.jobs.values()), {}) if case.planned is not None else {}
    ranks = count(job.get("nproc_per_node"))
    cores = count(case.location.machine.get("cores")) * max(1, ranks)
    cores = min(cores, facts.cores or cores)
    loaders = count(mapping(mapping(job.get("config")).get("data")).get("workers"))
    threads = 0 if case.location.runs_command or loaders else count(job.get("threads_per_rank"))
    on_cpu = case.location.machine.get("accelerators") == []
    return cores or None, threads * ranks if on_cpu and threads * ranks else None


def _lost(waited: Mapping[str, Any]) -> tuple[float, float] | None:
    """Share that a line states as lost, and the one that its counters give; None where it lacks any."""
    names = ("ran", "waited", "others", "steal", "throttled", "lost")
    known = {name: finite_number(waited.get(name), below=LARGEST_SECONDS) for name in names}
    if any(value is None or value < 0 for value in known.values()):
        return None
    numbers = {name: float(value or 0.0) for name, value in known.items()}
    told = numbers["ran"] >= PROCESSOR_SECONDS  # less is counted in ticks, and rounded
    return (numbers["lost"], lost_share(numbers)) if told else None


def _contradiction(record: RunRecord, seconds: float, slack: float, witness: str) -> tuple[str, str | None]:
    """The sentence and the grade: a question up to what a busy machine may take longer."""
    said = f"The log says that the clock ran {(record.minutes or 0) * 60:.1f} s, but {witness}"
    if seconds <= _longest(record, slack * BUSY):
        return f"{said}; was the machine busy, or are the times too short?", REVIEW
    return f"{said}; its times are wrong.", None


def _longest(record: RunRecord, slack: float) -> float:
    """Seconds that an honest witness may measure."""
    return (record.minutes or 0.0) * 60 * (1 + SHARE) + slack
