"""End of a run: processes that died, a log that was cut off, unreadable and malformed lines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from train_bench.core.escape import plain
from train_bench.core.event import Event
from train_bench.core.usual_cause import usual_cause
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.clock import restart_lines
from train_bench.judge.finding import BREAKS, REVIEW, SLOW, Finding, finding
from train_bench.logs.log import Problem, Remark, first_naming, names, no_event
from train_bench.logs.record import DIED, SUCCESS

STATUS = "status"
RESTARTED = "restarted"

EMPTY = hashlib.sha256().hexdigest()

MOST_LINES = 3
"""Unreadable lines of one kind that are told one by one."""


def check_end(case: LogCase) -> list[Finding]:
    """Processes that died, or a log without run_stop: the run counts as not converged."""
    record, rules = case.record, case.rules
    if record.deaths:
        died = "; ".join(record.deaths).removesuffix(".")
        message = f"The run's processes died: {died}. {usual_cause(died)}".rstrip()
        return [finding(record, rules, "died", message, grade=SLOW)]
    if record.status == DIED:
        message = "There is no run_stop: the log was cut off, and the run counts as not converged."
        last = [one.line for one in case.log.problems[-MOST_LINES:] if one.line]
        unread = next((line for line in last if names(case.log.path, line, "run_stop")), None)
        if unread is None and last:
            first = first_naming(case.log.path, "run_stop")
            unread = first if first in {one.line for one in case.log.problems} else None
        other = None if case.log.problems else no_event(case.log.path, "run_stop")
        if unread is not None:
            message = f"run_stop in line {unread} cannot be read, so the run counts as not converged."
        elif other is not None:
            message = f"run_stop is {other}; the run counts as not converged."
        elif case.log.sha256 == EMPTY:
            message = "The log is empty, and the run counts as not converged."
        return [finding(record, rules, "died", message, key="run_stop", grade=SLOW)]
    return _misspelt_status(case)


def _misspelt_status(case: LogCase) -> list[Finding]:
    """`run_stop` without a status, or with a success in another spelling: not as a run that missed its target."""
    stop = case.log.events.first("run_stop")
    status = None if stop is None else stop.metadata.get("status")
    if (
        stop is None
        or status == SUCCESS
        or (status is not None and str(status).strip().casefold() != SUCCESS)
    ):
        return []
    said = status_in_words(stop)
    message = f"run_stop has {said}; a run counts as converged with the status 'success' in its metadata."
    record, rules = case.record, case.rules
    return [finding(record, rules, STATUS, message, line=stop.line, key="run_stop", value=status, grade=SLOW)]


def check_one_run(case: LogCase) -> list[Finding]:
    """Several runs in one file: each began after the one before had ended."""
    record, log, rules = case.record, case.log, case.rules
    stops = list(log.events.of("run_stop"))
    ends = [event.line for event in stops]
    starts = [event.line for event in log.events.of("run_start")]
    if restarted := restart_lines(log):
        return [_restarted(case, restarted), *_two_ends(case, stops)]
    if len(starts) < 2 or not ends or starts[-1] < ends[0]:
        return _two_ends(case, stops)
    lines = " and ".join(map(str, starts[:2]))
    message = (
        f"The file has the logs of {len(starts)} runs (run_start in lines {lines}); keep one run in a file."
    )
    return [finding(record, rules, "several_runs", message, line=starts[1], key="run_start", grade=BREAKS)]


def _restarted(case: LogCase, starts: Sequence[int]) -> Finding:
    """A run that was started again in its own log. Its time is that of the last start, which is not all of it."""
    begun = [event.line for event in case.log.events.of("init_start")]
    first = f"init_start in lines {_and(begun)}, " if len(begun) > 1 else ""
    message = (
        f"This log has {len(starts)} starts ({first}run_start in lines {_and(starts)}): the run was restarted in the "
        "same file. A run has one start; run it again as a whole."
    )
    return finding(case.record, case.rules, RESTARTED, message, line=starts[1], key="run_start", grade=BREAKS)


def _and(lines: Sequence[int]) -> str:
    *before, last = map(str, lines[:MOST_LINES])
    return f"{', '.join(before)} and {last}" if before else last


def _two_ends(case: LogCase, stops: Sequence[Event]) -> list[Finding]:
    """`run_stop` with a second status, of which the rules see the first."""
    said = [status_in_words(stop) for stop in stops]
    other = next((stop for stop in stops if status_in_words(stop) != said[0]), None)
    if other is None:
        return []
    message = (
        f"run_stop in line {stops[0].line} has {said[0]}, and that in line {other.line} {status_in_words(other)}; the "
        "first counts. Which one is right?"
    )
    return [finding(case.record, case.rules, STATUS, message, line=other.line, key="run_stop", grade=REVIEW)]


def status_in_words(stop: Event) -> str:
    """The status of `run_stop` as it is logged."""
    status = stop.metadata.get("status")
    return "no status" if status is None else f"the status {plain(repr(status)[:60])}"


def check_lines(case: LogCase) -> list[Finding]:
    """Unreadable lines. Half a line at the end of a run that was cut off is part of its end."""
    record, log, rules = case.record, case.log, case.rules
    last = log.events[-1].line if log.events else 0
    at_end = [problem for problem in log.problems if problem.line > last]
    alike: dict[str, list[Problem]] = {}
    for problem in log.problems:
        alike.setdefault(problem.message.partition(": ")[0], []).append(problem)
    findings = []
    for problems in alike.values():
        for problem in problems[:MOST_LINES]:
            cut_off = record.status == DIED and at_end == [problem]
            check, grade = ("died", SLOW) if cut_off else ("parse", BREAKS)
            message = f"Unreadable line: {problem.message}."
            findings.append(finding(record, rules, check, message, line=problem.line, grade=grade))
        if len(problems) > MOST_LINES:
            further = problems[MOST_LINES:]
            message = f"{len(further)} more lines likewise, the first of them line {further[0].line}."
            findings.append(finding(record, rules, "parse", message, line=further[0].line, grade=BREAKS))
    return findings


def check_format(case: LogCase) -> list[Finding]:
    """Malformed lines that are read because the official parser reads them."""
    record, rules = case.record, case.rules
    return [
        finding(record, rules, "format", malformed(one), line=one.line, grade=REVIEW)
        for one in case.log.remarks
    ]


def malformed(remark: Remark) -> str:
    """Malformed lines of one kind as a sentence."""
    lines = "One line" if remark.count == 1 else f"{remark.count} lines"
    return f"{lines}: {remark.message}; the official parser reads such lines in the same way."
