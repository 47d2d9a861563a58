"""Events of one run -> a record: `record_N.json`, always rebuildable from the log."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.event import Event
from train_bench.judge import log
from train_bench.judge.log import Log
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

SUCCESS, ABORTED, DIED = "success", "aborted", "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One evaluation: position in the benchmark's unit, logged value, when."""

    epoch_num: float | None
    value: Any
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What the log of one run says.

    status       `success` or `aborted` as `run_stop` has it; `died` if there is no `run_stop`
    minutes      from `run_start` to `run_stop` (rules, "Run results"); None if either is missing
    convergence  `epoch_num` of the last evaluation of a successful run, to three decimals
    samples      training samples to the target; samples / samples_per_second is the time in seconds
    quality      value of the last evaluation
    deaths       how processes of this run ended, where the campaign saw them die
    """

    file: str
    index: int
    benchmark: str | None
    seed: int | None
    global_batch_size: int | None
    status: str
    minutes: float | None
    init_minutes: float | None
    evaluations: tuple[Evaluated, ...]
    quality: Any
    convergence: float | None
    train_samples: int | None
    samples: float | None
    samples_per_second: float | None
    deaths: tuple[str, ...]
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """The paper's content."""
        return asdict(self)


def read_record(path: Path, rules: BenchmarkRules | None) -> tuple[RunRecord, Log]:
    """Read `result_N.txt` and, where a campaign left it, how the run's processes ended."""
    read = log.read(path)
    index = number_of(path)
    unit = rules.unit if rules is not None else Unit.EPOCH
    return make_record(read, index=index, unit=unit, deaths=_deaths(path, index)), read


def number_of(path: Path) -> int:
    """N of `result_N.txt`; 0 where there is no number."""
    return int("0" + "".join(char for char in path.stem.rpartition("_")[2] if char.isdecimal()))


def make_record(read: Log, *, index: int, unit: Unit, deaths: tuple[str, ...] = ()) -> RunRecord:
    """The facts of a run. Odd values (wrong types, several stops) become None or the first one; whether
    they are allowed is for the rules to say."""
    first = _first_of_each(read.events)
    start, stop = first.get("run_start"), first.get("run_stop")
    minutes = _between(start, stop)
    status = DIED if stop is None else (SUCCESS if stop.metadata.get("status") == SUCCESS else ABORTED)
    evaluations = _evaluations(read.events, stop)
    last = evaluations[-1] if evaluations else None
    converged_at = last.epoch_num if last and status == SUCCESS else None
    convergence = None if converged_at is None else round(converged_at, 3)
    train_samples = _integer(first.get("train_samples"))
    samples = _samples(convergence, unit, train_samples)
    return RunRecord(
        file=str(read.path),
        index=index,
        benchmark=_text(first.get("submission_benchmark")),
        seed=_integer(first.get("seed")),
        global_batch_size=_integer(first.get("global_batch_size")),
        status=status,
        minutes=minutes,
        init_minutes=_between(first.get("init_start"), first.get("init_stop")),
        evaluations=evaluations,
        quality=last.value if last else None,
        convergence=convergence,
        train_samples=train_samples,
        samples=samples,
        samples_per_second=samples / (minutes * 60) if samples and minutes and minutes > 0 else None,
        deaths=deaths,
        sha256=read.sha256,
    )


def _first_of_each(events: tuple[Event, ...]) -> dict[str, Event]:
    first: dict[str, Event] = {}
    for event in events:
        first.setdefault(event.key, event)
    return first


def _evaluations(events: tuple[Event, ...], stop: Event | None) -> tuple[Evaluated, ...]:
    last_line = stop.line if stop else math.inf
    return tuple(
        Evaluated(
            epoch_num=_number(event.metadata.get("epoch_num")),
            value=_finite(event.value),
            time_ms=event.time_ms,
        )
        for event in events
        if event.key in ("eval_accuracy", "eval_error") and event.line < last_line
    )


def _samples(convergence: float | None, unit: Unit, train_samples: int | None) -> float | None:
    if convergence is None:
        return None
    if unit is Unit.SAMPLE:
        return convergence
    return convergence * train_samples if unit is Unit.EPOCH and train_samples else None


def _between(start: Event | None, stop: Event | None) -> float | None:
    return (stop.time_ms - start.time_ms) / 60_000 if start and stop else None


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def _finite(value: Any) -> Any:
    """Values for strict JSON: what is not a finite number or an object of such is None."""
    if isinstance(value, Mapping):
        return {str(name): _number(item) for name, item in value.items()}
    return _number(value)


def _integer(event: Event | None) -> int | None:
    value = _number(event.value) if event else None
    return int(value) if value is not None else None


def _text(event: Event | None) -> str | None:
    return event.value if event and isinstance(event.value, str) else None


def _deaths(path: Path, index: int) -> tuple[str, ...]:
    ending = path.parent / "ranks" / f"run_{index}" / "ending.json"
    try:
        return tuple(str(death) for death in json.loads(ending.read_text(encoding="utf-8"))["deaths"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
