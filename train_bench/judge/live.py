"""Compliance check of a growing log: reports irreversible rule violations at once."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from train_bench.core.event import Event, Events
from train_bench.judge.checks.review import initialisation, schedule
from train_bench.judge.checks.rule_files import broken_rule
from train_bench.judge.finding import Finding, finding
from train_bench.logs.log import NO_CONTENT, Log
from train_bench.logs.record import EVALUATION, make_record
from train_bench.rules.checks import Checking
from train_bench.rules.ruleset import BenchmarkRules


class LiveCheck:
    """Takes the log of one run line by line. `used_seeds` are those of the campaign's earlier runs."""

    def __init__(self, rules: BenchmarkRules, path: Path, used_seeds: Container[int]) -> None:
        self._rules = rules
        self._path = path
        self._used_seeds = used_seeds
        self._checking = Checking(rules)
        self._events = Events()
        self._logged: set[str] = set()
        self._reported: set[tuple[str, int]] = set()

    def event(self, event: Event) -> list[Finding]:
        """Check the next line; returns its irreversible rule violations."""
        self._events.add(*event)
        self._logged.add(event.key)
        self._checking.feed(event)
        findings = [
            broken_rule(str(self._path), failure, self._rules, self._logged)
            for failure in self._checking.broken_so_far()
        ]
        if event.key == "seed" or event.key in EVALUATION:
            findings += self._of_the_record(event)
        return self._new(findings)

    def waiting(self, now_ms: int) -> list[Finding]:
        """Check without a new line: an initialisation over its time limit."""
        if "init_start" not in self._logged or "init_stop" in self._logged:
            return []
        stopped = Event(key="init_stop", value=None, time_ms=now_ms, line=0)
        record = make_record(self._log(Events((*self._events, stopped))), index=0, rules=self._rules)
        return self._new(list(initialisation(record, self._rules)))

    def _of_the_record(self, event: Event) -> list[Finding]:
        record = make_record(self._log(self._events), index=0, rules=self._rules)
        findings = list(schedule(record, self._rules))
        if event.key == "seed" and record.seed in self._used_seeds:
            message = (
                f"Seed {record.seed} was already used by a run of this campaign; every run needs its own "
                "seed."
            )
            findings.append(finding(record, self._rules, "seed", message, line=event.line, key="seed"))
        return findings

    def _log(self, events: Events) -> Log:
        return Log(path=self._path, events=events, problems=(), sha256=NO_CONTENT)

    def _new(self, findings: list[Finding]) -> list[Finding]:
        new = [one for one in findings if (one.check, one.line) not in self._reported]
        self._reported |= {(one.check, one.line) for one in new}
        return new
