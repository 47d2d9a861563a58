"""Files of a campaign: rules and points that changed since the plan, runs with other software than planned, and the
number of attempts at each run.

Whoever ran the campaign could have edited all of these files, so that the absence of a finding proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.errors import LogError, RequestError
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.finding import BREAKS, REVIEW, Finding, file_finding, finding
from train_bench.judge.locate import Location
from train_bench.logs.record import RunRecord
from train_bench.rules.ruleset import BenchmarkRules

FINISHED, DIED, INTERRUPTED = "finished", "died", "interrupted"
CONTINUES = "continues"
"""Key of an attempt that goes on in the log of the one before it, behind a checkpoint."""
"""Outcomes of an attempt; None: killed together with its campaign."""

BUDGET_MARK = "(max_minutes="
"""In the reason of a run that its time limit ended."""

Attempt = Mapping[str, Any]

Changes = Callable[[str, Mapping[str, Any], int], Sequence[str]]
"""Changes of a configuration for so many ranks to a benchmark as it is defined here; raises `RequestError` where
it is none of that benchmark."""


def check_attempts(case: EntryCase, record: RunRecord) -> Iterator[Finding]:
    """Attempts at a run, and software other than that of its plan."""
    location, rules = case.location, case.rules
    plan = location.plan_or_package
    attempts = attempts_at(location, record.index)
    if attempts:
        yield from _tried(attempts, record, rules)
        yield from _gaps(attempts, record, rules)
        for difference in differences(plan, attempts[-1]):
            yield finding(record, rules, "software", f"The run had {difference}.")
    elif "software" in plan:
        message = "There is no record of this run in attempts/, where a campaign records every attempt."
        yield finding(record, rules, "attempts", message)
    elif earlier := _count(location.folder / "failed", f"result_{record.index}_*.txt"):
        message = f"This run had {earlier + 1} attempts; the earlier logs are in failed/."
        yield finding(record, rules, "attempts", message, value=earlier + 1, grade=REVIEW)


def check_changes_since_plan(case: EntryCase) -> Iterator[Finding]:
    """Rules, points and sources that changed since the plan, all for review: an entry is judged by those of today."""
    location, rules, points_digest = case.location, case.rules, case.points_digest
    plan = location.plan_or_package
    then = plan.get("ruleset_digest")
    if isinstance(then, str) and then != rules.digest:
        message = (
            f"The rules of {rules.name} in {rules.ruleset} changed after the campaign was planned; the "
            f"current rules apply{_other_target(plan, rules)}."
        )
        yield file_finding(location.folder / "plan.json", "ruleset_digest", message, value=then)
    if "points_digest" in plan and plan["points_digest"] != points_digest:
        message = (
            f"The reference convergence points of {rules.name} changed after the campaign was planned; the "
            "current points apply."
        )
        yield file_finding(
            location.folder / "plan.json", "points_digest", message, value=plan["points_digest"]
        )
    revision = plan.get("revision")
    if isinstance(revision, str) and revision.endswith("+changes"):
        message = (
            f"The campaign was planned from uncommitted source ({revision}); others cannot check it out."
        )
        yield file_finding(location.folder / "plan.json", "revision", message, value=revision)


def check_budget(case: EntryCase) -> Iterator[Finding]:
    """Budget of the runs, and those that it ended; for review, because they count as runs that did not converge and
    cost the campaign less time than those do."""
    location, records = case.location, case.records
    plan = location.plan_or_package
    stated = [mapping(plan.get("request")), *jobs_of(location.plan)]
    for budget in dict.fromkeys(
        one.get("stop_when") for one in stated if isinstance(one.get("stop_when"), str)
    ):
        ended = [
            str(record.index) for record in records if any(BUDGET_MARK in death for death in record.deaths)
        ]
        message = f"Runs had a time limit, {budget}"
        if location.plan:  # a package does not say how runs ended
            listed = f"{len(ended)} of them (index {', '.join(ended)}), counted as not converged"
            message += f"; it stopped {listed if ended else 'none of them'}"
        message += "."
        yield file_finding(location.folder / "plan.json", "stop_when", message, value=budget)


def check_injected_faults(case: EntryCase) -> Iterator[Finding]:
    """Planned fault injection, which the closed division does not allow, injected or not."""
    location = case.location
    stated = [mapping(location.plan_or_package.get("request")), *jobs_of(location.plan)]
    requested = [one.get("faults") for one in stated if one.get("faults") is not None]
    if requested:
        message = (
            f"The plan has fault injection, inject_faults={requested[0]!r:.80}; the closed division does not "
            "allow it."
        )
        yield file_finding(
            location.folder / "plan.json",
            "faults",
            message,
            value=requested[0],
            grade=BREAKS if case.closed else REVIEW,
        )


def redefined_values(location: Location, rules: BenchmarkRules, changes: Changes | None) -> tuple[str, ...]:
    """Values of the planned configurations that differ from the benchmark, and that the plan does not list as
    changes. Such a plan was made with another definition of the benchmark, or was edited."""
    plan = location.plan_or_package
    ranks, named = plan.get("world_size"), plan.get("changes")
    if changes is None or not isinstance(ranks, int):
        return ()
    changed: dict[str, None] = {}
    configs = [*(job.get("config") for job in jobs_of(plan)), plan.get("config")]
    for at, config in enumerate(configs):
        if isinstance(config, Mapping) and "reference" in config and config not in configs[:at]:
            try:
                changed |= dict.fromkeys(changes(rules.name, config, ranks))
            except RequestError as error:
                changed[str(error).rstrip(".")] = None
    return tuple(change for change in changed if not (isinstance(named, list) and change in named))


def attempts_at(location: Location, index: int) -> list[Attempt]:
    """Attempts at a run in their order, from a campaign or a package."""
    return attempts_by_run(location, str(index)).get(index, [])


def attempts_by_run(location: Location, only: str = "*") -> dict[int, list[Attempt]]:
    """Attempts at each run in their order, from a campaign or a package; `only` a run, or all that have some."""
    found: dict[int, list[Attempt]] = {}
    packaged = location.configuration.get("attempts")
    if isinstance(packaged, Sequence):
        for attempt in packaged:
            if isinstance(attempt, Mapping) and isinstance(attempt.get("run"), int):
                found.setdefault(attempt["run"], []).append(attempt)
        return found
    numbered = {}
    folder = location.folder / "attempts"
    for path in folder.glob(f"run_{only}_*.json") if folder.is_dir() else ():
        if name := re.fullmatch(r"run_(\d{1,9})_(\d{1,9})", path.stem, re.ASCII):
            numbered[int(name[1]), int(name[2])] = path
    for (run, _), path in sorted(numbered.items()):
        found.setdefault(run, []).append(_read(path))
    return found


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between `now` and `then` in source, versions and rules, as parts of a sentence."""
    sentences = []
    software, other = (mapping(state.get("software")) for state in (then, now))
    if software.get("sources") != other.get("sources"):
        sentences.append(
            f"other source ({other.get('sources')}, revision {now.get('revision')}) than planned "
            f"({software.get('sources')}, revision {then.get('revision')})"
        )
    reference, another = (mapping(state.get("reference")) for state in (software, other))
    if reference.get("digest") != another.get("digest"):
        sentences.append(
            f"other source of the reference ({another.get('digest')}, revision {another.get('revision')}) "
            f"than planned ({reference.get('digest')}, revision {reference.get('revision')})"
        )
    sentences += _other_program(*(mapping(state.get("program")) for state in (software, other)))
    if then.get("ruleset_digest") != now.get("ruleset_digest"):
        sentences.append("other rules than planned")
    versions = {"python": software.get("python")} | mapping(software.get("packages"))
    others = {"python": other.get("python")} | mapping(other.get("packages"))
    for name in sorted({*versions, *others}):
        if versions.get(name) != others.get(name):
            sentences.append(f"{name} {others.get(name)} instead of {versions.get(name)}")
    return sentences


def _other_program(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Differences in the user's program of a `command=`. Files of its checkout that differ from their revision are
    not compared: the results of a campaign may lie among them."""
    digests, others = mapping(then.get("files")), mapping(now.get("files"))
    changed = sorted(name for name in {*digests, *others} if digests.get(name) != others.get(name))
    if changed:
        yield f"other content of {', '.join(changed)} than planned"
    for name, what in (("revision", "revision of the program"), ("interpreter", "interpreter")):
        before, after = (str(state.get(name)).removesuffix("+changes") for state in (then, now))
        if before != after:
            yield f"{what} {after} instead of {before}"


def _tried(attempts: Sequence[Attempt], record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    *earlier, _ = attempts
    if earlier:
        ends = "; ".join(
            f"attempt {number} {_end(attempt)}" for number, attempt in enumerate(earlier, start=1)
        )
        message = f"This run had {len(attempts)} attempts: {ends}. The last one is the result."
        yield finding(record, rules, "attempts", message, value=len(attempts), grade=REVIEW)
    if any(attempt.get("outcome") == FINISHED for attempt in earlier):
        message = "This run was repeated after it had finished, and its first result was removed."
        yield finding(record, rules, "attempts", message, value=len(attempts))


def _gaps(attempts: Sequence[Attempt], record: RunRecord, rules: BenchmarkRules) -> Iterator[Finding]:
    """Attempts whose record was removed: a campaign numbers them from 1."""
    numbers = [attempt.get("attempt") for attempt in attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        message = (
            f"The attempts at this run are numbered {', '.join(map(str, numbers))[:80]}; a campaign numbers them from "
            "1, so the record of another attempt was removed."
        )
        yield finding(record, rules, "attempts", message, value=len(numbers))


def _end(attempt: Attempt) -> str:
    outcome = attempt.get("outcome")
    deaths = attempt.get("deaths")
    if outcome == DIED:
        how = "; ".join(map(str, deaths)) if isinstance(deaths, Sequence) else ""
        return f"died{f' ({how})' if how else ''}"
    if outcome in (FINISHED, INTERRUPTED):
        return "finished" if outcome == FINISHED else "was interrupted"
    return "was killed with its campaign"


def _other_target(plan: Mapping[str, Any], rules: BenchmarkRules) -> str:
    """Target of the runs, if the current one differs."""
    try:
        thresholds = jobs_of(plan)[0]["target"]["thresholds"]
        then = [(one["metric"], one["value"]) for one in thresholds]
    except (KeyError, IndexError, TypeError):
        return ""
    if then == [(one.metric, one.value) for one in rules.target.thresholds]:
        return ""
    planned = " and ".join(f"{metric} {value}" for metric, value in then)
    return f" (target {rules.target}; planned with {planned})"


def _count(folder: Path, pattern: str) -> int:
    return len(list(folder.glob(pattern))) if folder.is_dir() else 0


def _read(path: Path) -> Attempt:
    try:
        return mapping(files.read_json(path))
    except LogError:
        return {}
