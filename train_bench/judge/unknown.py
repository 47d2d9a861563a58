"""What is not known of a user's own program: references tell it in their logs, and nobody can make a program do so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from train_bench.judge.finding import REVIEW, Finding
from train_bench.judge.log import Log
from train_bench.judge.ranks import REPLICAS
from train_bench.judge.record import PROCESSOR_WAIT
from train_bench.judge.samples import DATA, ORDER

MEANING = {
    DATA: "whether evaluation and training read different data",
    ORDER: "which samples it trained on, and in which order",
    REPLICAS: "whether its ranks held the same model",
    PROCESSOR_WAIT: "how long it waited for processors",
}
"""Keys of a log, and what is not known without them."""


def told(log: Log) -> frozenset[str]:
    """Which of these keys a log has, with a value."""
    return frozenset(event.key for event in log.events if event.key in MEANING and event.value is not None)


def of_program(folder: Path, logs: Collection[frozenset[str]], world_size: int | None) -> Iterator[Finding]:
    """One sentence about the program of the campaign in `folder`, whose logs have told these keys."""
    due = [key for key in MEANING if key != REPLICAS or world_size != 1]
    lacking = [MEANING[key] for key in due if not all(key in one for one in logs)]
    message = (
        "A program of the user's own has trained. Known of it is what its log says; its clock is its own. Not known: "
        f"{'; '.join(['whether it touched data before run_start', *lacking])}."
    )
    yield Finding(check="program", grade=REVIEW, file=str(folder), line=0, key=None, message=message)
