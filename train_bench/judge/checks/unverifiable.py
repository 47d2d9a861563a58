"""Verifiable and unverifiable facts of a user's own program: references log them, and a program cannot be made to."""

from __future__ import annotations

from collections.abc import Iterator

from train_bench.judge.checks.case import EntryCase, LogCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.ranks import REPLICAS
from train_bench.judge.checks.samples import DATA, ORDER
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.logs.log import Log
from train_bench.logs.record import PROCESSOR_WAIT

MEANING = {
    DATA: "whether evaluation and training read different data",
    ORDER: "which samples it trained on, and in which order",
    REPLICAS: "whether its ranks held the same model",
    PROCESSOR_WAIT: "how long it waited for processors",
}
"""Keys of a log, and what is not known without them."""

DATA_BEFORE_RUN_START = "data_before_run_start"
LARGEST_DELAY_MS = "largest_delay_ms"
DELAY_BOUND_MS = 100
WRITTEN_BY = "written_by"

OWNER = "the clock is that of train_bench, started and stopped by the program's calls"
NO_OWNER = "the clock is the program's own"


def logged_keys(log: Log) -> frozenset[str]:
    """Subset of these keys that a log has, with a value."""
    keys = {
        event.key for event in log.events if event.key in (*MEANING, WRITTEN_BY) and event.value is not None
    }
    watched = [mapping(event.value) for event in log.events if event.key == DATA_BEFORE_RUN_START]
    return frozenset(keys | {DATA_BEFORE_RUN_START for one in watched if one.get("unknown") is None})


def check_program_log(case: LogCase) -> Iterator[Finding]:
    """External observations of a run of a program of the user's own, for review."""
    if not case.of_command:
        return
    record, log, rules = case.record, case.log, case.rules
    started = next((event for event in log.events if event.key == "init_start"), None)
    for event in log.events:
        if event.key == "init_stop" and started is not None and event.time_ms == started.time_ms:
            message = (
                "init_start and init_stop have the same time: nothing was built between them, so that how long the "
                "initialisation took is not known. init_start comes before the model."
            )
            yield finding(
                record, rules, "initialisation", message, line=event.line, key=event.key, grade=REVIEW
            )
        elif event.key == DATA_BEFORE_RUN_START and mapping(event.value).get("files"):
            seen = mapping(event.value)
            names = ", ".join(map(str, seen["first"])) if isinstance(seen.get("first"), list) else ""
            message = (
                f"{seen['files']} file(s) of {seen.get('folder')} were opened before run_start, the first of them "
                f"{names}. No sample of the data may be read before the clock starts; sizes and names may."
            )
            yield finding(record, rules, "data", message, line=event.line, key=event.key, grade=REVIEW)
        elif event.key == LARGEST_DELAY_MS and _number(event.value) > DELAY_BOUND_MS:
            message = (
                f"A call of the program was sent {_number(event.value):.0f} ms before or after it arrived; the times "
                f"in this log are those of arriving, and up to {DELAY_BOUND_MS} ms count as the same."
            )
            yield finding(record, rules, "delay", message, line=event.line, key=event.key, grade=REVIEW)


def check_program_keys(case: EntryCase) -> Iterator[Finding]:
    """One sentence about the program of a campaign: the facts in its logs, and the unverifiable ones."""
    if not case.location.runs_command:
        return
    folder, logs, world_size = case.folder, case.logged_keys, case.world_size
    due = [key for key in MEANING if key != REPLICAS or world_size != 1]
    lacking = [MEANING[key] for key in due if not all(key in one for one in logs)]
    owner = OWNER if all(WRITTEN_BY in one for one in logs) else NO_OWNER
    watched = all(DATA_BEFORE_RUN_START in one for one in logs)
    seen = "; which files of its data were opened before run_start was watched" if watched else ""
    unknown = [*([] if watched else ["whether it read data before run_start"]), *lacking]
    message = f"A program of the user's own has trained. Known: what its logs say; {owner}{seen}. Not known: "
    message += f"{'; '.join(unknown)}." if unknown else "nothing that a reference tells."
    yield Finding(check="program", grade=REVIEW, file=str(folder), line=0, key=None, message=message)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
