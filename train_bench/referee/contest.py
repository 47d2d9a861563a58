"""Contest: what is run and frozen, what a challenger may change, and what a record has to show."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from train_bench.core import files, shell_words
from train_bench.core.finite_number import finite_number
from train_bench.errors import RequestError
from train_bench.judge.checks.measured import measured_of
from train_bench.judge.checks.observed import observed_of
from train_bench.judge.entry import Judgement
from train_bench.judge.statistics import student_quantile
from train_bench.logs import log
from train_bench.referee.claim import POWER, Claim, Target, judge_record
from train_bench.referee.readers import Record, Run

LEAST_PAIRS, MOST_PAIRS = 3, 100
LARGEST_BYTES = 2**20
HANDED_BYTES, OUTSIDE_SECONDS = "handed_bytes", "outside_seconds"
"""Measured quantities: bytes of what a run hands over to its evaluator, at most, and seconds of its program before and
after the clock."""

OF_RECORDS = ("peak_host_bytes", "peak_device_bytes", "init_minutes")
"""Measured quantities that the record of a run has by these names."""

OF_PROGRAMS = ("read_bytes", "written_bytes", "shared_memory_bytes", "left_processes")
"""Measured quantities that the observation of a program has by these names."""

LEAST_SESSIONS, MOST_SESSIONS = 3, 20
LEAST_AA, USUAL_AA = 3, 5

UNTIL = "benchmark.evaluation.until"
"""Option of `train-bench run` that ends runs at a budget."""

OF_TARGETS, OF_BUDGETS = ("gain_percent", "quality"), ("gain", "slower_percent")
"""Keys of a contest that times to a target decide, and of one that qualities at a budget decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Threshold that the mean final quality of the challenger's runs has to be beyond."""

    metric: str
    value: float
    above: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A contest by its file.

    run          options of `train-bench run`, of frontier and challenger alike
    frontier     revision that the first challenger is held to
    may_change   patterns of the files that a challenger may change; all others of the repository are frozen
    outside      digests of frozen files that git does not track, by their path
    measured     largest values of quantities of every run of a challenger, by mllog key or a name of this module
    gain         share of time that a challenger has to gain; at a budget, quality in the unit of its metric
    budget       amount of training in the benchmark's unit, at which qualities decide; None: times to the target do
    slower       at a budget, largest share of time that a challenger may take longer; None without a gate on time
    error        error budget of the sequence of challengers
    pairs        largest number of pairs of runs of a challenge
    sessions     hosts or days over which the pairs are spread; above 1 each session is one observation
    aa_pairs     pairs of the frontier with itself before the first challenge on a host; 0 without
    cap_minutes  time limit of a run; None is none
    network      whether runs have the network
    flop_per_sample  least number of operations of a training sample; None without a bound of times
    digest       of the contest and of the files outside
    """

    name: str
    folder: Path
    run: tuple[str, ...]
    frontier: str
    may_change: tuple[str, ...]
    measured: Mapping[str, float]
    gain: float
    budget: float | None
    slower: float | None
    error: float
    pairs: int
    sessions: int
    aa_pairs: int
    cap_minutes: float | None
    network: bool
    flop_per_sample: float | None
    quality: Quality | None
    digest: str
    outside: Mapping[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        """The ledger, beside the contest."""
        return self.folder / "ledger.jsonl"

    @property
    def words(self) -> list[str]:
        """Options of each side."""
        cap = [] if self.cap_minutes is None else [f"max_minutes={self.cap_minutes:g}"]
        end = [] if self.budget is None else [f"{UNTIL}={self.budget:.12g}"]
        return [*self.run, *cap, *end]

    def frozen(self, changed: Sequence[str]) -> list[str]:
        """Those of the changed files that a challenger may not change."""
        return [
            name
            for name in changed
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.may_change)
        ]


NEEDED = ("contest", "run", "frontier", "may_change")
KNOWN = (
    *NEEDED,
    *(
        "outside",
        "measured",
        "gain_percent",
        "budget",
        "gain",
        "slower_percent",
        "error",
        "pairs",
        "sessions",
        "aa_pairs",
        "cap_minutes",
        "network",
        "flop_per_sample",
        "quality",
    ),
)


def read(path: Path) -> Contest:
    """Contest of a file. Raises `RequestError` for what is none."""
    try:
        text = files.read_bytes(path, largest=LARGEST_BYTES)
        content = yaml.safe_load(text)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict) or (missing := [name for name in NEEDED if name not in content]):
        lacks = ", ".join(missing) if isinstance(content, dict) else ", ".join(NEEDED)
        raise RequestError(f"{path} lacks {lacks}; docs/referee.md has an example of a contest.")
    if unknown := sorted(map(str, content.keys() - set(KNOWN))):
        raise RequestError(f"{path} has {unknown[0]}; a contest has {', '.join(KNOWN)}.")
    return _contest(path, content, text)


def _contest(path: Path, content: Mapping[str, Any], text: bytes) -> Contest:
    def number(name: str, default: float, low: float, high: float, given: Any = None) -> float:
        value = content.get(name, default) if given is None else given
        found = finite_number(value)
        if found is None or not low <= found <= high:
            raise RequestError(f"{name} of {path} is {value!r}; give a number from {low:g} to {high:g}.")
        return float(found)

    folder = files.resolved(path).parent
    outside = {name: _digest(folder, name, path) for name in _listed(content, "outside", path)}
    pairs, sessions = int(number("pairs", 20, LEAST_PAIRS, MOST_PAIRS)), content.get("sessions", 1)
    if sessions != 1:
        sessions = int(number("sessions", 1, LEAST_SESSIONS, MOST_SESSIONS))
    if pairs % sessions:
        raise RequestError(f"pairs of {path} is {pairs}; give a multiple of its {sessions} sessions.")
    aa_pairs = 0 if content.get("aa_pairs") == 0 else int(number("aa_pairs", USUAL_AA, LEAST_AA, MOST_PAIRS))
    network = content.get("network", False)
    if not isinstance(network, bool):
        raise RequestError(f"network of {path} is {network!r}; give true or false.")
    measured = content.get("measured") or {}
    if not isinstance(measured, dict):
        raise RequestError(f"measured of {path} is {measured!r}; give a largest value by name.")
    budget, run = content.get("budget"), shell_words.split(str(content["run"]), "run")
    if budget is not None:
        budget = round(number("budget", 0, 1e-6, 1e15), 6)
    _refuse_two_questions(path, content, run)
    whole = hashlib.sha256(text + json.dumps(outside, sort_keys=True).encode()).hexdigest()
    return Contest(
        name=str(content["contest"]),
        folder=folder,
        run=tuple(run),
        frontier=str(content["frontier"]),
        may_change=tuple(_listed(content, "may_change", path)),
        measured={
            str(name): number(str(name), 0, -math.inf, math.inf, given=value)
            for name, value in measured.items()
        },
        gain=number("gain_percent", 0, 0, 100) / 100 if budget is None else number("gain", 0, 0, 1e15),
        budget=budget,
        slower=None if content.get("slower_percent") is None else number("slower_percent", 0, 0, 1000) / 100,
        error=number("error", 0.01, 1e-6, 0.5),
        pairs=pairs,
        sessions=sessions,
        aa_pairs=aa_pairs,
        cap_minutes=None if content.get("cap_minutes") is None else number("cap_minutes", 0, 1e-3, 1e6),
        network=network,
        flop_per_sample=None
        if content.get("flop_per_sample") is None
        else number("flop_per_sample", 0, 1, 1e20),
        quality=_quality(content.get("quality"), path),
        digest=whole,
        outside=outside,
    )


def _refuse_two_questions(path: Path, content: Mapping[str, Any], run: Sequence[str]) -> None:
    """Raise `RequestError` for a contest with a budget and what belongs to a target, or the other way round."""
    at_budget = content.get("budget") is not None
    if others := [name for name in (OF_TARGETS if at_budget else OF_BUDGETS) if name in content]:
        raise RequestError(
            f"{path} has {'budget and ' if at_budget else ''}{others[0]}{'' if at_budget else ' and no budget'}; a "
            f"contest of times to a target has {', '.join(OF_TARGETS)}, one of qualities at a budget "
            f"{', '.join(OF_BUDGETS)}."
        )
    if at_budget and (own := [word for word in run if word.startswith(f"{UNTIL}=")]):
        raise RequestError(f"run of {path} has {own[0]}, which budget sets; leave it out of run.")


def _listed(content: Mapping[str, Any], name: str, path: Path) -> list[str]:
    found = content.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise RequestError(f"{name} of {path} is {found!r}; give a list of paths.")
    return found


def _digest(folder: Path, name: str, path: Path) -> str:
    try:
        return files.digest(folder / name)
    except OSError as error:
        raise RequestError(
            f"outside of {path} names {name}, which cannot be read: {error.strerror or error}."
        ) from error


def _quality(given: Any, path: Path) -> Quality | None:
    if given is None:
        return None
    sides = [side for side in ("above", "below") if isinstance(given, dict) and side in given]
    value = finite_number(given[sides[0]]) if len(sides) == 1 else None
    if value is None or not isinstance(given.get("metric"), str):
        raise RequestError(
            f"quality of {path} is {given!r}; give its metric and a threshold, {{metric: accuracy, above: 0.95}}."
        )
    return Quality(metric=given["metric"], value=float(value), above=sides == ["above"])


def quality_claim(contest: Contest, challenger: Judgement, level: float) -> Claim | None:
    """Test of the threshold on the final qualities of all runs of a challenger; None where the contest has none."""
    wanted = contest.quality
    if wanted is None:
        return None
    runs = []
    for record in challenger.records:
        value = record.quality.get(wanted.metric) if isinstance(record.quality, Mapping) else record.quality
        found = finite_number(value)
        runs.append(
            Run(source=record.file, quality=math.nan if found is None else float(found), time=None, facts={})
        )
    target = Target(value=wanted.value, above=wanted.above, level=level)
    return judge_record(
        Record(path=contest.folder, runs=tuple(runs), quality=wanted.metric, time=None), target, contest.name
    )


def beyond(contest: Contest, challenger: Judgement) -> list[str]:
    """Measured quantities of a challenger beyond those of the contest, and those that its runs do not have; one that
    died has no time, and needs none."""
    said = []
    whole = [at for at, record in enumerate(challenger.records) if record.minutes is not None]
    for name, most in contest.measured.items():
        found = [_quantity(name, challenger, at) for at in whole]
        if any(one is None for one in found):
            said.append(f"{name} is not known of every run of the challenger")
        elif (largest := max((one for one in found if one is not None), default=0.0)) > most:
            said.append(f"{name} is {largest:g}; the contest allows {most:g}")
    return said


def _quantity(name: str, challenger: Judgement, at: int) -> float | None:
    record = challenger.records[at]
    if name == HANDED_BYTES:
        found = measured_of(challenger.location, record.index)
        return max(found.bytes, default=0.0) if found is not None else None
    if name == OUTSIDE_SECONDS:
        seen = outside_of(challenger)[at]
        return None if seen is None else seen.seconds
    if name in OF_PROGRAMS:
        observed = observed_of(challenger.location, record.index)
        counted: float | None = None if observed is None else getattr(observed, name)
        return counted
    if name in OF_RECORDS:
        kept = finite_number(getattr(record, name))
        return None if kept is None else float(kept)
    last = [event.value for event in log.read(Path(record.file)).events.of(name)]
    value = finite_number(last[-1]) if last else None
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the program of a run did, by those who started it: seconds before and after its clock, and seconds of its
    processors there (at least); seconds of its clock, and of its processors on it; the quantities `OF_PROGRAMS`. None
    where the system does not tell."""

    seconds: float
    processor_seconds: float | None = None
    clock_seconds: float | None = None
    clock_processor_seconds: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    shared_memory_bytes: float | None = None
    left_processes: float | None = None


def outside_of(judged: Judgement) -> list[Outside | None]:
    """Of each run of a campaign what its program did outside the clock; None of references, and without a record."""
    found: list[Outside | None] = []
    for record in judged.records:
        seen = observed_of(judged.location, record.index)
        if seen is None or seen.life_seconds is None or record.minutes is None:
            found.append(None)
            continue
        total, on_the_clock = seen.processor_seconds, seen.clock_processor_seconds
        found.append(
            Outside(
                seconds=max(0.0, seen.life_seconds - record.minutes * 60),
                processor_seconds=None if total is None or on_the_clock is None else total - on_the_clock,
                clock_seconds=record.minutes * 60,
                clock_processor_seconds=on_the_clock,
                **{name: getattr(seen, name) for name in OF_PROGRAMS},
            )
        )
    return found


def least_gain(differences: Sequence[float], pairs: int, level: float) -> float | None:
    """Least gain, as a share of time, that so many pairs with the spread of these differences of logarithms show at
    the level with the usual power; None with fewer than two."""
    return None if len(differences) < 2 else least_gain_at(statistics.stdev(differences), pairs, level)


def least_gain_at(deviation: float, pairs: int, level: float) -> float:
    """The same of a deviation of differences of logarithms."""
    return 1 - math.exp(-least_difference_at(deviation, pairs, level))


def least_difference_at(deviation: float, pairs: int, level: float) -> float:
    """Least mean difference that so many pairs of this deviation show at the level with the usual power."""
    quantiles = student_quantile(pairs - 1, 1 - level) + student_quantile(pairs - 1, POWER)
    return quantiles * deviation / math.sqrt(pairs)
