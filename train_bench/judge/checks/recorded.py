"""Records of a campaign against each other and against what the judge knows: its own sources and versions, the runs of
the campaign among themselves, the plan and its runs. All for review: each has an honest explanation."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from train_bench import __version__
from train_bench.core import software
from train_bench.core.escape import plain
from train_bench.core.job import jobs_of
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.left import RELEASED, own_sources, version_of
from train_bench.judge.checks.planned import count, mapping
from train_bench.judge.checks.samples import DATA
from train_bench.judge.finding import Finding, file_finding

DAY_MS = 86_400_000
LATEST_DAYS = 30
"""Days from a plan to its first run from which on a question is asked."""

MAJOR_AHEAD = 1
"""Major versions by which a package may be newer than the one that the judge has."""

LOCAL_LAUNCHERS = ("inline", "torchrun")
"""Launchers whose ranks are on the host that starts them."""

REVISION = re.compile(r"[0-9a-f]{40,64}(\+changes)?")
LONGEST, MOST_NAMES, MOST_DIGITS = 60, 3, 12


def check_sources(case: EntryCase) -> Iterator[Finding]:
    """Sources of a plan against those of its revision in the judge's checkout, and, without a revision, against the
    judge's own of that version. Changed sources under a revision are another check's."""
    plan = case.location.plan_or_package
    sources, revision = mapping(plan.get("software")).get("sources"), plan.get("revision")
    if version_of(plan) < RELEASED or not isinstance(sources, str):
        return
    if isinstance(revision, str) and REVISION.fullmatch(revision):
        due = _sources_at(revision)
        if due not in (None, sources):
            message = (
                f"The plan names sources {_short(sources)} of revision {revision[:12]}, and that revision has {due}. "
                "Which code ran? Run the campaign again from a clean checkout."
            )
            yield file_finding(case.folder / "plan.json", "sources", message, value=sources)
    elif plan.get("train_bench") == __version__ and sources != own_sources():
        message = (
            f"The plan names sources {_short(sources)} without a revision, and train_bench {__version__} here has "
            f"{own_sources()}; others cannot check them out. Run the campaign from a git checkout or from a release."
        )
        yield file_finding(case.folder / "plan.json", "sources", message, value=sources)


@cache
def _sources_at(revision: str) -> str | None:
    return software.digest_of_sources_at(revision)


def check_versions(case: EntryCase) -> Iterator[Finding]:
    """Versions of packages that no release has, and those of the plan against the ones that its ranks found."""
    software_of_plan, machine = mapping(case.location.plan_or_package.get("software")), case.location.machine
    planned, found = (
        mapping(one.get("packages")) | ({"python": one["python"]} if one.get("python") else {})
        for one in (software_of_plan, machine)
    )
    known = software.versions() | {"python": platform.python_version()}
    unknown = [
        f"{name} {_short(version)}"
        for name, version in sorted({**found, **planned}.items())
        if name in known and not _is_possible(str(version), known[name])
    ]
    if unknown:
        message = (
            f"The campaign names {', '.join(unknown[:MOST_NAMES])}; by the versions here no release has that number. "
            "Which build was it?"
        )
        yield file_finding(case.folder / "plan.json", "versions", message, value=unknown[0])
    others = [
        f"{name} {_short(planned[name])} in the plan and {_short(found[name])} in system.json"
        for name in sorted(planned.keys() & found.keys())
        if planned[name] != found[name]
    ]
    if others and not case.location.runs_command:
        message = f"The ranks found other packages than the plan names: {'; '.join(others[:MOST_NAMES])}."
        yield file_finding(case.folder / "plan.json", "versions", message, value=others[0])


def _is_possible(version: str, known: str) -> bool:
    own, other = re.match(r"(\d{1,9})", known), re.match(r"v?(\d{1,9})(\.\d+)*", version)
    if own is None:
        return True
    return other is not None and int(other[1]) <= int(own[1]) + MAJOR_AHEAD


def check_interpreter(case: EntryCase) -> Iterator[Finding]:
    """Another interpreter for the ranks, which brings the code of its environment."""
    python = _job(case).get("python")
    if python is not None:
        message = (
            f"The ranks ran by python={_short(python)}, which brings the code of an environment of its own."
        )
        yield file_finding(case.folder / "plan.json", "interpreter", message, value=str(python))


def check_threads(case: EntryCase) -> Iterator[Finding]:
    """Threads that the plan gives a rank, against the cores of the system and the threads that the rank had."""
    planned, machine = count(_job(case).get("threads_per_rank")), case.location.machine
    had, cores = count(machine.get("threads_per_rank")), count(machine.get("cores"))
    if not planned or case.location.runs_command:
        return
    if had and had != planned:
        message = f"The plan gives a rank {planned} threads, and system.json has {had}. Which is right?"
        yield file_finding(case.folder / "plan.json", "threads", message, value=planned)
    elif cores and planned > cores:
        message = f"The plan gives a rank {planned} threads on {cores} cores. Is the system the right one?"
        yield file_finding(case.folder / "plan.json", "threads", message, value=planned)


def check_same_data(case: EntryCase) -> Iterator[Finding]:
    """Digests of data that differ among the runs of one campaign."""
    stated = {
        Path(record.file).name: program.data
        for record, program in zip(case.records, case.programs, strict=False)
        if program.data is not None
    }
    if len(set(stated.values())) > 1:
        ((usual, _),) = Counter(stated.values()).most_common(1)
        odd = [name for name, data in stated.items() if data != usual]
        more = f" and {len(odd) - 1} more have" if len(odd) > 1 else " has"
        message = (
            f"{odd[0]}{more} other data than most runs of this campaign ({DATA}); all runs of a campaign have the same "
            "data."
        )
        yield file_finding(case.folder, "data_of_runs", message, value=odd[0])


def check_known_data(case: EntryCase) -> Iterator[Finding]:
    """Digests of data of a benchmark whose data are always the same, against those that its rules state."""
    plan, known = case.location.plan_or_package, case.rules.data
    if known is None or not plan or plan.get("changes") or case.location.runs_command:
        return
    right = [known[name] for name in ("train", "evaluation")]
    for program in case.programs:
        stated = [] if program.data is None else program.data.split(" ")
        other = next(((one, own) for one, own in zip(stated, right, strict=False) if one != own), None)
        if other is not None:
            said, own = (plain(one)[:MOST_DIGITS] for one in other)
            message = (
                f"The runs had other data than those of {case.rules.name}: {DATA} has a digest of {said}..., and "
                f"theirs is {own}.... Which data were these?"
            )
            yield file_finding(case.folder, "known_data", message, value=other[0])
            return


def check_same_host(case: EntryCase) -> Iterator[Finding]:
    """Hosts that differ among the runs of a campaign whose ranks are on the host that starts them, and from the one
    that `system.json` describes."""
    if not runs_here(case):
        return
    last = [attempts[-1] for record in case.records if (attempts := attempts_at(case.location, record.index))]
    hosts = list(dict.fromkeys(host for one in last if isinstance(host := one.get("host"), str)))
    described = case.location.machine.get("host")
    if len(hosts) > 1:
        named = ", ".join(map(_short, hosts[:MOST_NAMES]))
        message = f"The runs were started on {len(hosts)} hosts ({named}). Was it one system?"
        yield file_finding(case.folder, "hosts", message, value=hosts[0])
    elif hosts and isinstance(described, str) and described not in hosts:
        message = (
            f"system.json describes the host {_short(described)}, and the runs were started on {_short(hosts[0])}. "
            "Which one was it?"
        )
        yield file_finding(case.folder, "hosts", message, value=described)


def runs_here(case: EntryCase) -> bool:
    """True for a campaign whose ranks are on the host that starts them, one run after another."""
    job = _job(case)
    name = mapping(job.get("launcher_config")).get("name")
    return bool(case.location.plan) and name in LOCAL_LAUNCHERS and job.get("nodes") in (None, 1)


def check_age(case: EntryCase) -> Iterator[Finding]:
    """A plan that is much older than its first run."""
    created = case.planned.created_ms if case.planned is not None else None
    started = [record.started_ms for record in case.records if record.started_ms is not None]
    if created is None or not started or min(started) - created <= LATEST_DAYS * DAY_MS:
        return
    days = round((min(started) - created) / DAY_MS)
    message = f"The first run began {days} days after the plan was written. Were there earlier runs of it?"
    yield file_finding(case.folder / "plan.json", "age", message, value=days)


def _job(case: EntryCase) -> dict[str, Any]:
    """The first job of the plan, which the others equal but for their seeds."""
    return mapping(next(iter(jobs_of(case.location.plan_or_package)), {}))


def _short(value: Any) -> str:
    return plain(str(value))[:LONGEST]
