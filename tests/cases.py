"""Cases: their order, their durations, the causes of their failures and of their absence."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import pytest

LONGEST_FIRST = (
    *("hosts", "slurm", "launchers", "own_trainer", "equivalence", "campaign", "cli", "check", "exchange"),
    *("compare", "run", "observers", "judge", "references"),
)
"""Folders whose files take longest, so that with several processes none is left alone with one of them at the end."""

COMPILING = "test_minigo_game.py"
"""Of the files that need the Go engine compiled, which takes a minute, one starts first, so that none waits for it."""

LIMIT_SECONDS = 3.0
"""Processor time of a case of `make test`, its child processes included, above which it carries the marker `slow`.
Processor time is not the time that a loaded machine takes; still it varies with the processor, so that
`--hold-durations` fails at `FAILING_SECONDS`, three times the limit."""

FAILING_SECONDS = 3 * LIMIT_SECONDS

MARKERS = ("slow", "full")
PROPERTY = "processor_seconds_without_marker"


def order(items: list[pytest.Item], tests: Path, seed: int | None) -> None:
    """Sort by folder, the longest first behind what compiles, or shuffle files and the tests of each file by a seed,
    alike in all workers. The tests of a file stay together, as do what they share."""
    if seed is None:
        items.sort(key=lambda item: _place(item.path, tests))
        return
    drawn = random.Random(seed)
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    drawn.shuffle(files)
    for group in files:
        drawn.shuffle(group)
    items[:] = [item for group in files for item in group]


def _place(path: Path, tests: Path) -> int:
    if path.name == COMPILING:
        return -1
    folder = path.relative_to(tests).parts[0] if path.is_relative_to(tests) else ""
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def share(items: Sequence[pytest.Item], part: int, parts: int) -> list[pytest.Item]:
    """The `part`-th of `parts` shares, counted from 0, dealt like cards: what is in none of the others.
    The cases of a parametrised test are dealt one by one; other tests of a file stay together."""
    numbers: dict[str, int] = {}
    return [item for item in items if numbers.setdefault(_card(item), len(numbers)) % parts == part]


def _card(item: pytest.Item) -> str:
    return item.nodeid if hasattr(item, "callspec") else str(item.path)


def share_of(said: str) -> tuple[int, int]:
    """`2/6` as numbers."""
    part, _, parts = said.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise pytest.UsageError(
            f"--share is {said!r}; it is the share and their number, counted from 0: 2/6 is the third of six."
        )
    return int(part), int(parts)


class OneFailurePerCause:
    """A fixture that cannot be set up raises the same exception for each test that needs it: the first test fails, and
    the others are skipped with its name."""

    def __init__(self) -> None:
        self._causes: list[tuple[BaseException, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if not report.failed or call.excinfo is None:
            return report
        error = call.excinfo.value
        first = next((name for cause, name in self._causes if cause is error), None)
        if first is None:
            self._causes.append((error, item.nodeid))
        elif first != item.nodeid:
            report.outcome = "skipped"
            report.longrepr = (
                str(item.path),
                item.location[1] or 0,
                f"Skipped: depends on what failed in {first}",
            )
        return report


class Durations:
    """Processor time of each case, measured where it runs and told where the session is summed up."""

    def __init__(self, config: pytest.Config) -> None:
        self._hold = bool(config.getoption("--hold-durations"))
        self._over: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        before = processor_seconds()
        try:
            yield
        finally:
            seconds = processor_seconds() - before
            if seconds > LIMIT_SECONDS and not any(map(item.get_closest_marker, MARKERS)):
                item.user_properties.append((PROPERTY, seconds))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PROPERTY:
                    self._over[report.nodeid] = float(str(value))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._failing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._over:
            return
        said = "too long" if self._failing() else "warning"
        terminalreporter.section(
            f"{said}: above {LIMIT_SECONDS:g} s of processor time without the marker slow or full"
        )
        for case, seconds in sorted(self._over.items(), key=lambda item: -item[1]):
            terminalreporter.line(f"{seconds:6.1f} s  {case}")

    def _failing(self) -> bool:
        return self._hold and max(self._over.values(), default=0.0) > FAILING_SECONDS


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def skip_reasons(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Lines of how many tests were skipped for which reason, the most frequent first."""
    counted = Counter(_reason(report) for report in reports)
    return [f"{count:5}  {reason}" for reason, count in counted.most_common()]


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")
