"""Run record of a log: `record_N.json`, always rebuildable from the log."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.core.event import Event, Events
from train_bench.core.finite_number import finite_number
from train_bench.core.job import exit_file
from train_bench.errors import LogError
from train_bench.logs import log
from train_bench.logs.log import Log
from train_bench.logs.restarts import without_lost_work
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules

SUCCESS, ABORTED, DIED = "success", "aborted", "died"
EVALUATION = ("eval_accuracy", "eval_error")
TRAIN_SAMPLES = "train_samples"
PROCESSOR_WAIT = "processor_wait"
PEAK_MEMORY = "peak_memory"
DATA_WAIT = "data_wait"

# In seconds: the kernel counts the time of others in ticks of 10 ms.
TOO_SHORT_TO_TELL = 1.0

NOTICEABLE = 0.05
"""Share of waiting for a processor, which the kernel counts in nanoseconds, below which a short run was undisturbed
whatever others did."""

TELLING_SECONDS = 10.0
"""Length of a run from which on all its times are equal to another's by copying alone. Of ten runs of 0.2 s, two have
equal times in every few campaigns."""


class Evaluated(NamedTuple):
    """One evaluation: position in the benchmark's unit, logged value, when, and in which line."""

    position: float | None
    value: Any
    time_ms: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Record of one run, from its log.

    announced    the values of the `submission_*` keys by key
    accelerators `number_of_nodes` times `accelerators_per_node` (of a node without any: 1), as HPC rounds log them
    seeds        every logged seed with the source line that logged it: (file, line number, seed)
    status       `success` or `aborted` as `run_stop` has it; `died` if there is no `run_stop`
    minutes      from `run_start` to `run_stop` (rules, "Run results"); None if either is missing
    convergence  position of the evaluation that ended a successful run, to three decimals
    counted      source of `convergence`: the key of the evaluation's metadata, or `train_samples`
    samples      training samples to the target; samples / samples_per_second is the time in seconds
    quality      value of the last evaluation
    processor_lost  share of the processor time that ranks were denied by other load; None if it is not recorded, and
                    for a run that is too short to measure and waited for processors
    peak_host_bytes, peak_device_bytes  most memory that a rank had on its host and on its GPU; None if not logged
    data_wait_ms the longest wait of a rank for its data, all batches together; None if not logged
    deaths       how processes of this run ended, where the campaign saw them die
    """

    file: str
    index: int
    benchmark: str | None
    announced: Mapping[str, str]
    accelerators: int | None
    seed: int | None
    seeds: tuple[tuple[str, int, int], ...]
    global_batch_size: int | None
    status: str
    started_ms: int | None
    minutes: float | None
    init_minutes: float | None
    evaluations: tuple[Evaluated, ...]
    quality: Any
    convergence: float | None
    counted: str
    train_samples: int | None
    samples: float | None
    samples_per_second: float | None
    processor_lost: float | None
    peak_host_bytes: int | None
    peak_device_bytes: int | None
    data_wait_ms: int | None
    deaths: tuple[str, ...]
    sha256: str

    @property
    def division(self) -> str | None:
        """The division that the log announces."""
        return self.announced.get("submission_division")

    @property
    def times_digest(self) -> str | None:
        """Digest of times that no two runs share to the millisecond: logs that have the same are copies of each other,
        however they are written. Of a run of `TELLING_SECONDS` these are its time and those of its evaluations since
        its start, so that a copy is known that was moved in time or has another seed; of a shorter one, and by a
        clock of whole seconds, start, time and evaluations. None without a time or evaluations."""
        if self.started_ms is None or not self.minutes or not self.evaluations:
            return None
        since = [one.time_ms - self.started_ms for one in self.evaluations]
        told: Any = (self.minutes, since)
        if len(since) < 2 or self.minutes * 60 < TELLING_SECONDS or not any(time % 1000 for time in since):
            told = (
                self.started_ms,
                self.minutes,
                [(one.position, one.value) for one in self.evaluations],
                since,
            )
        return hashlib.sha256(repr(told).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """The file's content."""
        return asdict(self) | {"evaluations": [evaluated._asdict() for evaluated in self.evaluations]}


def read_record(path: Path, rules: BenchmarkRules) -> tuple[RunRecord, Log]:
    """Read `result_N.txt` and, if a campaign left it, how the run's processes ended. Work lost to failures is left
    out."""
    read = without_lost_work(log.read(path))
    index = number_of(path)
    return make_record(read, index=index, rules=rules, deaths=_deaths(path, index)), read


def number_of(path: Path) -> int:
    """N of `result_N.txt`; 0 without a number."""
    return int("0" + "".join(char for char in path.stem.rpartition("_")[2] if char.isdecimal()))


def make_record(read: Log, *, index: int, rules: BenchmarkRules, deaths: tuple[str, ...] = ()) -> RunRecord:
    """Make the record of a run. Invalid values (wrong types, several stops) become None or the first one; the rules
    decide whether they are allowed."""
    first = read.events.first_of_each()
    seeds = _seeds(read.events)
    stop = first.get("run_stop")
    start = _last_before(read.events, "run_start", stop)
    minutes = _between(start, stop)
    status = DIED if stop is None else (SUCCESS if stop.metadata.get("status") == SUCCESS else ABORTED)
    evaluations = _evaluations(read.events, stop, rules.counted)
    last = _deciding(evaluations, rules, read.events)
    train_samples = _integer(first.get("train_samples"))
    convergence, counted = _convergence(last, first.get("train_samples"), rules.counted)
    if status != SUCCESS:
        convergence = None
    batch_size = _integer(first.get("global_batch_size"))
    due = rules.schedule_at(batch_size)
    trained = None if convergence is None else convergence - (due.start if due else 0.0)
    samples = _samples(trained, rules.unit, _integer(first.get("samples_per_epoch")) or train_samples)
    return RunRecord(
        file=str(read.path),
        index=index,
        benchmark=_text(first.get("submission_benchmark")),
        announced={
            key: event.value
            for key, event in first.items()
            if key.startswith("submission_") and isinstance(event.value, str)
        },
        accelerators=_accelerators(first),
        seed=seeds[0][2] if seeds else None,
        seeds=seeds,
        global_batch_size=batch_size,
        status=status,
        started_ms=start.time_ms if start else None,
        minutes=minutes,
        init_minutes=_between(first.get("init_start"), first.get("init_stop")),
        evaluations=evaluations,
        quality=last.value if last else None,
        convergence=convergence,
        counted=counted,
        train_samples=train_samples,
        samples=samples,
        samples_per_second=samples / (minutes * 60) if samples and minutes and minutes > 0 else None,
        processor_lost=_processor_lost(first.get(PROCESSOR_WAIT)),
        peak_host_bytes=_most(first.get(PEAK_MEMORY), "host_bytes"),
        peak_device_bytes=_most(first.get(PEAK_MEMORY), "device_bytes"),
        data_wait_ms=_most(first.get(DATA_WAIT), "milliseconds"),
        deaths=deaths,
        sha256=read.sha256,
    )


def _last_before(events: Events, key: str, stop: Event | None) -> Event | None:
    """Last event of `key` before the stop: a run that was started twice in one log is timed from the later start, as
    official summaries do."""
    last_line = stop.line if stop else math.inf
    before = [event for event in events.of(key) if event.line < last_line]
    return before[-1] if before else None


def _evaluations(events: Events, stop: Event | None, counted: str) -> tuple[Evaluated, ...]:
    """Evaluations of a run. Metrics on separate lines (the line names each) are one evaluation if they share a
    position."""
    last_line = stop.line if stop else math.inf
    evaluations: list[Evaluated] = []
    together: dict[float | None, int] = {}
    for event in events.of(*EVALUATION):
        if event.line >= last_line:
            continue
        position = finite_number(event.metadata.get("epoch_num" if counted == TRAIN_SAMPLES else counted))
        metric = event.metadata.get("metric")
        value = _finite({metric: event.value} if isinstance(metric, str) else event.value)
        evaluated = Evaluated(position=position, value=value, time_ms=event.time_ms, line=event.line)
        if isinstance(metric, str) and position in together:
            earlier = evaluations[together[position]]
            evaluations[together[position]] = evaluated._replace(value={**earlier.value, **value})
            continue
        if isinstance(metric, str):
            together[position] = len(evaluations)
        evaluations.append(evaluated)
    return tuple(evaluations)


def _deciding(evaluations: tuple[Evaluated, ...], rules: BenchmarkRules, events: Events) -> Evaluated | None:
    """Deciding evaluation: the last; if metrics are logged on separate lines, late and in any order, the earliest
    position that reached the target."""
    if any("metric" in event.metadata for event in events.of(*EVALUATION)):
        reached = [item for item in evaluations if rules.target.reached(rules.target.quality_of(item.value))]
        if reached:
            return min(reached, key=lambda item: math.inf if item.position is None else item.position)
    return evaluations[-1] if evaluations else None


def _convergence(last: Evaluated | None, trained: Event | None, counted: str) -> tuple[float | None, str]:
    """Position at the end of training, and its source. A line of `train_samples` after the last evaluation states what
    was really used; before it, it is a limit that was set beforehand."""
    if counted != TRAIN_SAMPLES:
        position = last.position if last else None
        return (None if position is None else round(position, 3)), counted
    samples = _integer(trained)
    if last is not None and trained is not None and samples is not None and trained.line > last.line:
        return samples, TRAIN_SAMPLES
    position = last.position if last else None
    return (None if position is None else round(position, 3)), "epoch_num"


def _seeds(events: Events) -> tuple[tuple[str, int, int], ...]:
    seeds = []
    for event in events.of("seed"):
        seed = _seed_of(event)
        if seed is not None:
            lineno = finite_number(event.metadata.get("lineno"))
            seeds.append((str(event.metadata.get("file")), int(lineno or 0), seed))
    return tuple(seeds)


def _seed_of(event: Event) -> int | None:
    """Seed as a number, or from a text of one (the seed checker takes what can be converted)."""
    if isinstance(event.value, str) and re.fullmatch(r"\s*[+-]?\d{1,100}\s*", event.value):
        return int(event.value)
    return _integer(event)


def _samples(trained: float | None, unit: Unit, samples_per_epoch: int | None) -> float | None:
    if trained is None:
        return None
    if unit is Unit.SAMPLE:
        return trained
    return trained * samples_per_epoch if unit is Unit.EPOCH and samples_per_epoch else None


def _processor_lost(event: Event | None) -> float | None:
    value = event.value if event else None
    if not isinstance(value, Mapping):
        return None
    seconds, lost = finite_number(value.get("seconds")), finite_number(value.get("lost"))
    if seconds is None or seconds >= TOO_SHORT_TO_TELL or lost is None:
        return lost
    ran, waited, throttled = (finite_number(value.get(name)) for name in ("ran", "waited", "throttled"))
    if ran is None or waited is None or throttled is None or ran <= 0:
        return None
    most = (waited + throttled) / (ran + waited)  # had all of it been for others
    return min(lost, most) if most <= NOTICEABLE else None


def _most(event: Event | None, kind: str) -> int | None:
    """Largest value of a kind among the ranks; None if it is not logged as numbers."""
    value = event.value.get(kind) if event is not None and isinstance(event.value, Mapping) else None
    numbers = [finite_number(one) for one in value] if isinstance(value, list) else []
    known = [one for one in numbers if one is not None]
    return int(max(known)) if known and len(known) == len(numbers) else None


def waited_too_briefly(event: Event | None) -> bool:
    """True if a log has the wait for processors of a run that is too short to say for whom."""
    value = event.value if event else None
    seconds = finite_number(value.get("seconds")) if isinstance(value, Mapping) else None
    return seconds is not None and seconds < TOO_SHORT_TO_TELL and _processor_lost(event) is None


def _between(start: Event | None, stop: Event | None) -> float | None:
    return (stop.time_ms - start.time_ms) / 60_000 if start and stop else None


def _finite(value: Any) -> Any:
    """Values for strict JSON: None for everything but finite numbers and objects of such."""
    if isinstance(value, Mapping):
        return {str(name): finite_number(item) for name, item in value.items()}
    return finite_number(value)


def _accelerators(first: Mapping[str, Event]) -> int | None:
    nodes, per_node = (_integer(first.get(key)) for key in ("number_of_nodes", "accelerators_per_node"))
    return None if nodes is None or per_node is None else nodes * max(per_node, 1)


def _integer(event: Event | None) -> int | None:
    value = finite_number(event.value) if event else None
    return int(value) if value is not None else None


def _text(event: Event | None) -> str | None:
    return event.value if event and isinstance(event.value, str) else None


def _deaths(path: Path, index: int) -> tuple[str, ...]:
    ended = exit_file(path.parent / "ranks" / f"run_{index}")
    try:
        return tuple(plain(str(death)) for death in files.read_json(ended)["deaths"])
    except (LogError, KeyError, TypeError):
        return ()
