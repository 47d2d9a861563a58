"""Facts of one log as the checkers of the package checker read them, each with its own reader.

The RCP checker looks for keys as a part of a line, takes the last value, and stops with an exception on what it does
not expect; the seed checker takes whatever converts to a number; the compliance checker does not guard the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.core.event import Event, raw_metadata
from train_bench.logs.log import CRASH, READ, REFUSED, Log
from train_bench.logs.record import SUCCESS
from train_bench.rules.ruleset import BenchmarkRules

EPOCH, SAMPLES = "epoch_num", "samples_count"
ASYNCHRONOUS = (SAMPLES, "step_num")
"""Positions of evaluations whose metrics are logged one by one."""

BATCH_SIZE, BENCHMARK, EVALUATED, STOPPED = "global_batch_size", "submission_benchmark", "eval", "run_stop"


class OfficialCrash(Exception):
    """An official checker stops with an exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RcpFacts:
    """Facts that the RCP checker reads. `position` is None for a run that did not converge; `batch_size` -1 if none
    is logged; `crash` the exception."""

    batch_size: Any = -1
    benchmark: Any = None
    position: Any = None
    crash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialLog:
    """Facts of one log. `seeds` are (file, line number, seed); `seed_error` is the reason for which the seed checker
    cannot read them; `crash` the exception of the compliance checker."""

    compliant: bool
    seeds: tuple[tuple[Any, Any, int], ...] = ()
    seed_error: str | None = None
    rcp: RcpFacts = field(default_factory=RcpFacts)
    crash: str | None = None


def official_log(read: Log, *, compliant: bool, crash: str | None, rules: BenchmarkRules) -> OfficialLog:
    """Facts of a log; `compliant` and `crash` are those of its rule files."""
    broken = next((problem.message for problem in read.problems if problem.official == CRASH), None)
    seeds, seed_error = _seeds(read)
    return OfficialLog(
        compliant=compliant,
        seeds=seeds,
        seed_error=seed_error,
        rcp=_rcp_facts(read, rules),
        crash=f"a line is {broken}" if broken is not None else crash,
    )


def reads(read: Log) -> bool:
    """True if the official parser reads every line of a log."""
    return all(problem.official == READ for problem in read.problems)


def _seeds(read: Log) -> tuple[tuple[tuple[Any, Any, int], ...], str | None]:
    if not reads(read):
        return (), "it has lines that are not read"
    seeds = []
    for event in read.events.of("seed"):
        metadata = raw_metadata(event)
        try:
            seed = metadata["file"], metadata["lineno"], int(event.value)
            hash(seed)
        except Exception as error:
            return (), f"line {event.line}: {_said(error)}"
        seeds.append(seed)
    return tuple(seeds), None


@cache
def _roles(key: str) -> frozenset[str]:
    """Roles of a key for the RCP checker, which looks for its words anywhere in a line."""
    roles = {role for role in (BATCH_SIZE, BENCHMARK) if role in key}
    if "eval_error" in key or "eval_accuracy" in key:
        roles.add(EVALUATED)
    return frozenset(roles | ({STOPPED} if key == STOPPED else set()))


def _rcp_facts(read: Log, rules: BenchmarkRules) -> RcpFacts:
    reading = _RcpReading(rules)
    roles = {key: known for key in read.events.keys if (known := _roles(key))}
    try:
        for problem in read.problems:
            if problem.official == REFUSED and any(word in problem.text for word in WORDS):
                raise OfficialCrash(f"line {problem.line} is {problem.message}")
        for event in read.events.of(*roles):
            reading.take(event, roles[event.key])
    except OfficialCrash as error:
        return RcpFacts(crash=str(error))
    except Exception as error:
        return RcpFacts(crash=_said(error))
    return reading.facts()


WORDS = (BATCH_SIZE, BENCHMARK, "eval_error", "eval_accuracy", STOPPED)


class _RcpReading:
    """The RCP checker's reading of one log, line by line."""

    def __init__(self, rules: BenchmarkRules) -> None:
        self._rules = rules
        metrics = [threshold.metric for threshold in rules.target.thresholds]
        self._metrics = metrics if rules.counted in ASYNCHRONOUS and len(metrics) > 1 else []
        self._results: dict[Any, dict[Any, Any]] = {}
        self._batch_size: Any = -1
        self._benchmark: Any = None
        self._last: Any = None
        self._evaluated = False
        self._position: Any = None

    def facts(self) -> RcpFacts:
        return RcpFacts(
            batch_size=self._batch_size, benchmark=self._benchmark, position=self._position, crash=None
        )

    def take(self, event: Event, roles: frozenset[str]) -> None:
        if BATCH_SIZE in roles:
            self._batch_size = event.value
        if BENCHMARK in roles:
            self._benchmark = event.value
        if EVALUATED in roles:
            self._evaluate(event, raw_metadata(event))
        if STOPPED in roles:
            self._stop(raw_metadata(event)["status"])

    def _evaluate(self, event: Event, metadata: Mapping[str, Any]) -> None:
        counted = self._rules.counted if self._benchmark == self._rules.name else EPOCH
        if self._metrics and counted != EPOCH:
            self._results.setdefault(metadata[counted], {})[metadata["metric"]] = event.value
            return
        self._evaluated = True
        self._last = metadata[counted] if counted == SAMPLES else round(metadata[EPOCH], 3)

    def _stop(self, status: Any) -> None:
        if status != SUCCESS:
            self._position = None
            return
        if self._results:
            self._last = min(step for step, result in self._results.items() if self._reached(result))
        elif not self._evaluated:
            raise OfficialCrash("UnboundLocalError: there is no evaluation above run_stop")
        if not isinstance(self._last, (int, float)):
            raise OfficialCrash(f"TypeError: the position {self._last!r} is not a number")
        self._position = self._last

    def _reached(self, result: Mapping[Any, Any]) -> bool:
        """True if an evaluation whose metrics are on lines of their own reached the target; all have to be there."""
        values = {name: result[name] for name in self._metrics}
        return self._rules.target.reached(self._rules.target.quality_of(values))


def seed_problems(names: Sequence[str], logs: Sequence[OfficialLog]) -> list[str]:
    """Objections of the seed checker: a log without a seed, a seed that is logged twice from one source line."""
    missing = [f"{name} logs no seed" for name, log in zip(names, logs, strict=True) if not _has_seed(log)]
    reasons = missing[:1]
    reasons += [f"{name}: {log.seed_error}" for name, log in zip(names, logs, strict=True) if log.seed_error][
        :1
    ]
    first: dict[tuple[Any, Any, int], str] = {}
    for name, log in zip(names, logs, strict=True):
        twice = [seed for seed in log.seeds if first.setdefault(seed, name) != name]
        again = next((seed for seed, count in Counter(log.seeds).items() if count > 1), None)
        if again is not None:
            reasons.append(f"seed {again[2]} twice in {Path(name).name}, logged by one source line")
            break
        if twice:
            reasons.append(
                f"seed {twice[0][2]} in {Path(first[twice[0]]).name} and {Path(name).name}, logged by one source line"
            )
            break
    return reasons


def _has_seed(log: OfficialLog) -> bool:
    return bool(log.seeds) or log.seed_error is not None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
