"""What the files of a campaign record, against each other and against what the judge knows: its own sources and
versions, the runs of the campaign among themselves, the plan and its runs. All for review: each has an honest
explanation, which the submitter can give."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from train_bench.core import software
from train_bench.core.escape import plain
from train_bench.core.job import jobs_of
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.left import THIS, version_of
from train_bench.judge.checks.planned import count, mapping
from train_bench.judge.finding import REVIEW, Finding

DAY_MS = 86_400_000
LATEST_DAYS = 30
"""Days from a plan to its first run from which on a question is asked."""

PAUSE_MS, PAUSE_RUNS = 6 * 3_600_000, 10
"""Pause between two runs, and multiple of the longest run, above both of which a question is asked."""

MAJOR_AHEAD = 1
"""Major versions by which a package may be newer than the one that the judge has."""

LONGEST = 60


def check_sources(case: EntryCase) -> Iterator[Finding]:
    """The sources of a plan against those that its revision has in the judge's checkout, and a plan without a revision
    whose sources are not the judge's."""
    plan = case.location.plan_or_package
    sources = mapping(plan.get("software")).get("sources")
    if version_of(plan) < THIS or not isinstance(sources, str):
        return
    revision = plan.get("revision")
    if not isinstance(revision, str):
        if sources != (own := _own_sources()):
            message = (
                f"The plan names no revision of its sources ({plain(sources)[:LONGEST]}), and this train_bench has "
                f"others ({own}); they cannot be checked out."
            )
            yield _of_plan(case, "sources", message, sources)
        return
    due = _sources_at(revision)  # None for changed sources, which are asked about elsewhere
    if due not in (None, sources):
        message = (
            f"The plan names the revision {revision[:12]} with the sources {plain(sources)[:LONGEST]}; that revision "
            f"has the sources {due}. Which code ran?"
        )
        yield _of_plan(case, "sources", message, sources)


@cache
def _own_sources() -> str:
    return software.digest_of_sources()


@cache
def _sources_at(revision: str) -> str | None:
    return software.digest_of_sources_at(revision)


def check_versions(case: EntryCase) -> Iterator[Finding]:
    """Versions of packages that no release has, and those of the plan against the ones that its ranks found."""
    planned = mapping(mapping(case.location.plan_or_package.get("software")).get("packages"))
    found = mapping(case.location.machine.get("packages"))
    known = software.versions()
    unknown = [
        f"{name} {_short(version)}"
        for name, version in sorted({**found, **planned}.items())
        if name in known and not _is_possible(str(version), known[name])
    ]
    if unknown:
        message = f"No release of {' and '.join(unknown)} is known here. What was it?"
        yield _of_plan(case, "versions", message, unknown[0])
    others = [
        f"{name} {_short(planned.get(name))} in the plan and {_short(found.get(name))} in system.json"
        for name in sorted({*planned, *found})
        if planned and found and planned.get(name) != found.get(name)
    ]
    if others and not case.location.runs_command:
        message = f"The ranks found other packages than the plan names: {'; '.join(others[:3])}."
        yield _of_plan(case, "versions", message, others[0])


def _is_possible(version: str, known: str) -> bool:
    own, other = re.match(r"(\d{1,9})", known), re.match(r"v?(\d{1,9})(\.\d+)*", version)
    if own is None:
        return True
    return other is not None and int(other[1]) <= int(own[1]) + MAJOR_AHEAD


def check_interpreter(case: EntryCase) -> Iterator[Finding]:
    """Another interpreter for the ranks, which brings an environment of its own."""
    python = _job(case).get("python")
    if python is not None:
        message = (
            f"The ranks ran by an interpreter of their own, python={_short(python)}, which brings the code of its "
            "environment."
        )
        yield _of_plan(case, "interpreter", message, str(python))


def check_threads(case: EntryCase) -> Iterator[Finding]:
    """Threads that the plan gives a rank, against the cores of the system and the threads that the rank had."""
    planned, machine = count(_job(case).get("threads_per_rank")), case.location.machine
    had, cores = count(machine.get("threads_per_rank")), count(machine.get("cores"))
    if not planned or case.location.runs_command:
        return
    if had and had != planned:
        message = f"The plan gives a rank {planned} threads, and system.json has {had}. Which is right?"
        yield _of_plan(case, "threads", message, planned)
    elif cores and planned > cores:
        message = f"The plan gives a rank {planned} threads on {cores} cores. Is the system the right one?"
        yield _of_plan(case, "threads", message, planned)


def check_same_campaign(case: EntryCase) -> Iterator[Finding]:
    """Data and hosts that differ among the runs of one campaign."""
    data = [one.data for one in case.programs]
    if len({one for one in data if one is not None}) > 1:
        usual = Counter(one for one in data if one is not None).most_common(1)[0][0]
        odd = [
            Path(record.file).name
            for record, one in zip(case.records, data, strict=False)
            if one not in (None, usual)
        ]
        message = (
            f"{' and '.join(odd[:3])} {'has' if len(odd) == 1 else 'have'} other data than the other runs (digests in "
            "data_fingerprint); runs of a campaign have the same."
        )
        yield _of_campaign(case, "data_of_runs", message, odd[0])
    planned = case.planned
    if planned is None or planned.side_by_side:
        return
    launcher = mapping(_job(case).get("launcher_config"))
    last = [attempts[-1] for record in case.records if (attempts := attempts_at(case.location, record.index))]
    hosts = list(dict.fromkeys(str(one["host"]) for one in last if isinstance(one.get("host"), str)))
    described = case.location.machine.get("host")
    if len(hosts) > 1 and not launcher.get("array"):
        named = ", ".join(map(_short, hosts[:3]))
        message = f"The runs were started on {len(hosts)} hosts ({named}); was it one system?"
        yield _of_campaign(case, "hosts", message, hosts[0])
    elif hosts and isinstance(described, str) and described not in hosts and launcher.get("name") == "inline":
        message = (
            f"system.json describes the host {_short(described)}, and the runs were started on {_short(hosts[0])}; a "
            "rank of launcher=inline is on the host that starts it."
        )
        yield _of_campaign(case, "hosts", message, described)


def check_age(case: EntryCase) -> Iterator[Finding]:
    """A plan that is much older than its first run, and a run that began long after the one before it, at its first
    attempt: one that was interrupted has an attempt that says so."""
    planned = case.planned
    timed = sorted(
        (
            (record.started_ms, record.started_ms + (record.minutes or 0) * 60_000, record)
            for record in case.records
            if record.started_ms is not None
        ),
        key=lambda one: one[0],
    )
    if planned is None or not timed:
        return
    created = planned.created_ms
    if created is not None and timed[0][0] - created > LATEST_DAYS * DAY_MS:
        days = (timed[0][0] - created) / DAY_MS
        message = (
            f"The first run began {days:.0f} days after the plan was written. Were there earlier runs of it?"
        )
        yield _of_plan(case, "age", message, round(days))
    if planned.side_by_side or mapping(_job(case).get("launcher_config")).get("array"):
        return
    most = max(PAUSE_MS, PAUSE_RUNS * max(ended - started for started, ended, _ in timed))
    for (_, ended, _), (started, _, record) in pairwise(timed):
        if started - ended > most and len(attempts_at(case.location, record.index)) == 1:
            name = Path(record.file).name
            message = (
                f"{name} began {(started - ended) / 3_600_000:.1f} h after the run before it had ended, at its first "
                "attempt. Was it taken again?"
            )
            yield _of_campaign(case, "pause", message, record.index)
            return


def _job(case: EntryCase) -> dict[str, Any]:
    """The first job of the plan, which the others equal but for their seeds."""
    return mapping(next(iter(jobs_of(case.location.plan_or_package)), {}))


def _short(value: Any) -> str:
    return plain(str(value))[:LONGEST]


def _of_plan(case: EntryCase, check: str, message: str, value: Any) -> Finding:
    return _of_campaign(case, check, message, value, file="plan.json")


def _of_campaign(case: EntryCase, check: str, message: str, value: Any, file: str = "") -> Finding:
    path = str(case.folder / file) if file else str(case.folder)
    return Finding(check=check, grade=REVIEW, file=path, line=0, key=None, message=message, value=value)
