"""Verifiable and unverifiable facts of a user's own program: references log them, and a program cannot be made to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from train_bench.core.digits import distinct
from train_bench.core.job import KEPT_WEIGHTS, jobs_of
from train_bench.judge.checks import observed
from train_bench.judge.checks.case import EntryCase, LogCase, ProgramFacts
from train_bench.judge.checks.loaded import loaded_code
from train_bench.judge.checks.measured import THE_PROGRAM, measured_by
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.ranks import REPLICAS
from train_bench.judge.checks.samples import DATA, ORDER
from train_bench.judge.finding import REVIEW, Finding, file_finding, finding
from train_bench.logs.log import Log
from train_bench.logs.record import PROCESSOR_WAIT, RunRecord

MEANING = {
    DATA: "disjoint training and evaluation data",
    ORDER: "the training samples and their order",
    REPLICAS: "equal models on all ranks",
    PROCESSOR_WAIT: "its wait for CPUs",
}
"""Keys of a log, and the fact that is unverifiable without each."""

DATA_BEFORE_RUN_START = "data_before_run_start"
LARGEST_DELAY_MS = "largest_delay_ms"
DELAY_BOUND_MS = 100
PROGRAM_RANKS, PRECISION, NODES = "program_ranks", "precision", "number_of_nodes"
PRECISION_NAMES = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
"""Names of precisions in torch, and those in plans."""

MOST_RANKS = 10**7
"""Number of ranks or hosts above which a log states none."""


OWN_CLOCK = "the clock is that of train_bench, started and stopped by the program's calls"
SEEN_CLOCK = (
    "train_bench saw run_start and run_stop arrive as far apart as the log has them, to 5 % and 2.5 s"
)
NOT_SEEN = "the clock, which is the program's own"
QUALITY = (
    "the quality, which the program alone measured, and with it that it trained (a program that computes something "
    "else looks alike)"
)
TRAINED = "that it trained (answers or weights that it had before look alike)"
NO_EARLY_DATA = "no data access before run_start"


def logged_keys(log: Log) -> frozenset[str]:
    """Subset of these keys, and of that of kept weights, that a log has, with a value."""
    named = log.events.of(*MEANING, KEPT_WEIGHTS)
    return frozenset(event.key for event in named if event.value is not None)


def program_facts(log: Log, record: RunRecord) -> ProgramFacts:
    """Facts of its ranks that a program has logged through `Benchmark`, else by numbers of nodes and accelerators."""
    kept = (PROGRAM_RANKS, PRECISION, NODES, PROCESSOR_WAIT, DATA)
    last = {event.key: event.value for event in log.events.of(*kept)}
    waited = mapping(last.get(PROCESSOR_WAIT))
    told = mapping(last.get(PROGRAM_RANKS))
    devices, precision = told.get("devices"), last.get(PRECISION)
    kinds = dict.fromkeys(_device_type(one) for one in devices) if isinstance(devices, list) else ()
    return ProgramFacts(
        ranks=_count(told.get("ranks")) or record.accelerators,
        hosts=_count(told.get("hosts")) or _count(last.get(NODES)),
        devices=", ".join(kinds) or None,
        precision=canonical_precision(precision),
        ran=_seconds(waited, "ran"),
        waited=_seconds(waited, "waited"),
        others=_seconds(waited, "others"),
        cores=_count(waited.get("cores")) if waited.get("machines") == 1 else None,
        data=_data_digest(last.get(DATA)),
        loaded=loaded_code(log),
    )


def _data_digest(value: Any) -> str | None:
    """Digests of training and evaluation data in a `data_fingerprint`, as one text; None without both."""
    digests = [mapping(mapping(value).get(name)).get("digest") for name in ("train", "evaluation")]
    return " ".join(map(str, digests)) if all(isinstance(one, str) for one in digests) else None


def _seconds(waited: Mapping[str, Any], name: str) -> float | None:
    seconds = observed.number(waited.get(name)) if waited.get("machines") == 1 else None
    return None if seconds is None or seconds < 0 else seconds


def ran_as(programs: Sequence[ProgramFacts], field: str) -> Any:
    """Fact on which all logs agree that state it; None without one."""
    values = {value for one in programs if (value := getattr(one, field)) is not None}
    return values.pop() if len(values) == 1 else None


def ran_or_planned(programs: Sequence[ProgramFacts], field: str, planned: Any) -> Any:
    """Fact of the programs as their logs have it, the `planned` one if none states it, None if they disagree."""
    stated = any(getattr(one, field) is not None for one in programs)
    return ran_as(programs, field) if stated else planned


def check_ran_as_planned(case: EntryCase) -> Iterator[Finding]:
    """Ranks, hosts, device and precision of a program against those that the plan names."""
    if not case.location.runs_command:
        return
    job = next(iter(jobs_of(case.location.plan_or_package)), {})
    device, precision = job.get("device"), job.get("precision")
    planned = {
        "ranks": case.world_size,
        "hosts": job.get("nodes"),
        "devices": None if device in (None, "auto") else _device_type(device),
        "precision": canonical_precision(precision),
    }
    for field, due in planned.items():
        logged = [getattr(one, field) for one in case.programs]
        others = {value: logged.count(value) for value in logged if value not in (None, due)}
        if due is not None and others:
            named = " and ".join(
                f"{value}" if runs == len(logged) else f"{value} ({runs} of {len(logged)} runs)"
                for value, runs in others.items()
            )
            message = (
                f"The plan names {due} as {field} of the program, and its logs {named}; what ran counts."
            )
            yield file_finding(case.folder, "ran_as", message, key=field, value=next(iter(others)))


def canonical_precision(precision: object) -> str | None:
    """Name of a precision in plans, for one of its names in torch or elsewhere."""
    if not isinstance(precision, str):
        return None
    name = precision.strip().lower().removeprefix("torch.")
    return PRECISION_NAMES.get(name, name)


def _device_type(device: object) -> str:
    """`cuda` of `cuda:1`."""
    return str(device).partition(":")[0]


def _count(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_RANKS else None
    )


def check_program_log(case: LogCase) -> Iterator[Finding]:
    """External observations of a run of a program of the user's own, for review."""
    if not case.of_command:
        return
    record, log, rules = case.record, case.log, case.rules
    started = log.events.first("init_start")
    for event in log.events.of("init_stop", DATA_BEFORE_RUN_START, LARGEST_DELAY_MS):
        if event.key == "init_stop" and started is not None and event.time_ms == started.time_ms:
            message = (
                "init_start and init_stop have the same time, so the duration of the initialisation is "
                "unknown; log init_start before the model is built."
            )
            yield finding(
                record, rules, "initialisation", message, line=event.line, key=event.key, grade=REVIEW
            )
        elif event.key == DATA_BEFORE_RUN_START and mapping(event.value).get("files"):
            opened = mapping(event.value)
            names = ", ".join(map(str, opened["first"])) if isinstance(opened.get("first"), list) else ""
            message = (
                f"{opened['files']} file(s) of {opened.get('folder')} were opened before run_start by a process "
                "of its host, this program or another one that shares the folder, the first of them "
                f"{names}. Before the clock starts, sizes and names of the data may be read, but no samples."
            )
            yield finding(record, rules, "data", message, line=event.line, key=event.key, grade=REVIEW)
        elif event.key == LARGEST_DELAY_MS and _number(event.value) > DELAY_BOUND_MS:
            delay, bound = distinct(_number(event.value), DELAY_BOUND_MS, decimals=0)
            message = (
                f"A call of the program was sent {delay} ms before or after it arrived "
                f"(limit {bound} ms); the log has the times of arrival."
            )
            yield finding(record, rules, "delay", message, line=event.line, key=event.key, grade=REVIEW)


def check_program_keys(case: EntryCase) -> Iterator[Finding]:
    """One sentence about the program of a campaign: what train_bench has observed of it from outside, and the
    unverifiable facts. Who owned the clock is known by the record of the attempts, and never read from a log."""
    if not case.location.runs_command:
        return
    folder, logs = case.folder, case.logged_keys
    world_size = ran_or_planned(case.programs, "ranks", case.world_size)
    due = [key for key in MEANING if key != REPLICAS or world_size != 1]
    lacking = [MEANING[key] for key in due if not all(key in one for one in logs)]
    seen = [(observed.observed_of(case.location, record.index), record) for record in case.records]
    known = [(one, record) for one, record in seen if one is not None]
    complete = len(known) == len(seen)
    own = complete and all(one.wrote_log for one, _ in known)
    clock = own or (complete and all(observed.saw_the_clock(one, record) for one, record in known))
    watched = complete and all(one.watched for one, _ in known)
    facts = [OWN_CLOCK if own else SEEN_CLOCK] if clock else []
    if watched:
        facts.append(
            "the data files opened before run_start were recorded (on its host, and no copies of them)"
        )
    by = measured_by(case)
    if by != THE_PROGRAM:
        facts.append(f"the quality was measured by {by}")
    held = sum(int(one.held or 0) for one, _ in known)
    early = [f"{NO_EARLY_DATA} by processes that had the data open before"] if held else []
    untouched = sum(one.opened == 0 for one, _ in known)
    unread = (
        f"which data were read (in {untouched} of {len(seen)} runs no file of the data folder was opened)"
    )
    unknown = [
        *([] if clock else [NOT_SEEN]),
        QUALITY if by == THE_PROGRAM else TRAINED,
        *([unread] if untouched else []),
        *(early if watched else [NO_EARLY_DATA]),
        *lacking,
    ]
    message = (
        f"The training program is the user's own. Verified: {'; '.join(facts) or 'nothing'}. Not verifiable: "
    )
    message += f"{'; '.join(unknown)}."
    yield file_finding(folder, "program", message)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
