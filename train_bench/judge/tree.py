"""Judgements of a log, a campaign, or a whole tree of results, several at a time."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from train_bench.core import cores
from train_bench.core.progress_bar import bar
from train_bench.errors import LogError, RequestError
from train_bench.judge.checks.campaign_checks import Changes
from train_bench.judge.compliance import RunVerdict
from train_bench.judge.entry import Judgement, judge_entry
from train_bench.judge.finding import file_finding
from train_bench.judge.locate import Entries, Location, find, in_folder
from train_bench.judge.patterns import time_copies
from train_bench.judge.published import peers, published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.logs.log import NO_CONTENT
from train_bench.logs.record import RunRecord
from train_bench.progress import Unit

# Fewer evaluations may well come at the same milliseconds in two runs.
FEW = 2

# Below so many bytes of logs, other processes cost more than they save.
WORTH_PROCESSES = 4_000_000

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Entries below a path in the order of their folders, the reasons for unjudged ones, and the skipped files,
    which are no entry."""

    entries: tuple[Judgement, ...]
    unjudged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def is_one_entry(self) -> bool:
        """True for one entry and nothing else to report."""
        return len(self.entries) == 1 and not self.unjudged and not self.skipped

    @property
    def valid(self) -> bool:
        """True if every entry is valid; a single log, whose validity is None, is no result."""
        return not self.unjudged and all(entry.score.valid for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """One object with `entries`, `unjudged` and `skipped`."""
        entries = [entry.as_json() for entry in self.entries]
        return {"entries": entries, "unjudged": list(self.unjudged), "skipped": list(self.skipped)}


def judge_tree(path: Path, **options: Any) -> Judged:
    """As `judge_trees`, below one path."""
    return judge_trees((path,), **options)


def judge_trees(
    paths: Sequence[Path],
    *,
    ruleset_name: str | None,
    rcp_folders: Sequence[Path],
    changes: Changes | None = None,
    table: Callable[[], Sequence[Entry]] = published_entries.shipped,
    judge: Callable[..., Judgement] = judge_entry,
) -> Judged:
    """Judge everything below `paths` by the rules that its folders name, else by `ruleset_name`; the rest as
    `judge_found`. Raises `RequestError` if no ruleset is known, `LogError` if there is nothing to judge.
    """
    found = [find(path, ruleset_name) for path in paths]
    return judge_found(found, rcp_folders=rcp_folders, changes=changes, table=table, judge=judge)


def judge_found(
    found: Sequence[Entries],
    *,
    rcp_folders: Sequence[Path],
    changes: Changes | None = None,
    table: Callable[[], Sequence[Entry]] = published_entries.shipped,
    judge: Callable[..., Judgement] = judge_entry,
) -> Judged:
    """Judge the entries that were found, each once. `changes` is `judge_entry`'s, and `judge` has its signature.
    Published entries are compared with each other and with those of `table`, which is called if there are any."""
    entries_there = Entries(
        locations=_each_once(location for one in found for location in one.locations),
        unjudged=tuple(dict.fromkeys(reason for one in found for reason in one.unjudged)),
        skipped=tuple(dict.fromkeys(what for one in found for what in one.skipped)),
    )
    locations = entries_there.locations
    judge = partial(judge, rcp_folders=rcp_folders, changes=changes)
    if len(locations) == 1 and not entries_there.unjudged:
        only = judge(locations[0])
        return Judged(entries=tuple(_with_peers([only], table)), skipped=entries_there.skipped)
    results = each_of(partial(_judged_or_why_not, judge), locations, "judging")
    entries = _with_copies([result for result in results if isinstance(result, Judgement)])
    return Judged(
        entries=tuple(_with_peers(entries, table)),
        unjudged=(*entries_there.unjudged, *(result for result in results if isinstance(result, str))),
        skipped=entries_there.skipped,
    )


def _each_once(locations: Iterable[Location]) -> tuple[Location, ...]:
    """Locations without those that lie below a second of the given paths, too."""
    return tuple({(one.folder.resolve(), one.files): one for one in locations}.values())


def _judged_or_why_not(judge: Callable[[Location], Judgement], location: Location) -> Judgement | str:
    """Judge one entry of a tree; an error is kept, so that it hides no other entry."""
    try:
        return judge(location)
    except (LogError, RequestError) as error:
        return str(error)


def judge_folder(
    folder: Path, *, ruleset_name: str | None, rcp_folders: Sequence[Path], changes: Changes | None = None
) -> Judgement:
    """Judge the one entry that lies in `folder`, or else below it. Raises as `judge_tree` does."""
    here = in_folder(folder, ruleset_name)
    if here is not None:
        return judge_entry(here, rcp_folders=rcp_folders, changes=changes)
    entries = judge_tree(folder, ruleset_name=ruleset_name, rcp_folders=rcp_folders, changes=changes).entries
    if len(entries) != 1:
        raise RequestError(f"{folder} has {len(entries)} entries; give the folder of one.")
    return entries[0]


def each_of(read: Callable[[Location], Result], locations: Sequence[Location], doing: str) -> list[Result]:
    """Apply `read` to each, in their order and in parallel if that is faster. Entries are independent; a process
    holds one file at a time."""
    if _small(locations):
        return list(map(read, bar(locations, doing)))
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    try:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(cores.usable_cores(), context, initializer=_collect_rarely) as pool:
            results = pool.map(read, locations, chunksize=max(1, len(locations) // 64))
            return list(bar(results, doing, total=len(locations)))
    except BrokenProcessPool as error:
        raise LogError("A process that read logs was killed; check that there is enough memory.") from error


def _collect_rarely() -> None:
    """Disable frequent garbage collection: logs are many objects without cycles; looking for cycles among them takes
    a fifth of the time."""
    gc.set_threshold(1_000_000, 100, 100)


def _small(locations: Sequence[Location]) -> bool:
    size = 0
    for file in (file for location in locations for file in location.files):
        size += file.lstat().st_size
        if size > WORTH_PROCESSES:
            return False
    return True


def _with_copies(entries: Sequence[Judgement]) -> list[Judgement]:
    """Mark logs in the judgements that another entry has, too, or whose times it has."""
    first: dict[Any, tuple[Path, str]] = {}
    places = [(entry.location.folder, record) for entry in entries for record in entry.records]
    patterns = iter(_copied_patterns(places) if len(entries) > 1 else [None] * len(places))
    marked = []
    for entry in entries:
        verdicts = []
        for record, verdict in zip(entry.records, entry.verdicts, strict=True):
            pattern = next(patterns)
            here = (entry.location.folder, record.file)
            same, timed = first.setdefault(record.sha256, here), first.setdefault(_times(record), here)
            if same[0] != here[0] and record.sha256 != NO_CONTENT:
                message = f"This log is a copy of {same[1]} of another entry."
                verdict = _with_finding(record, verdict, "duplicate", message)
            elif timed[0] != here[0] and len(record.evaluations) >= FEW and record.minutes is not None:
                message = (
                    f"The run and its {len(record.evaluations)} evaluations have the same times, to the "
                    f"millisecond, as those of {timed[1]} of another entry; times of two runs differ."
                )
                verdict = _with_finding(record, verdict, "same_times", message)
            elif pattern is not None:
                message = (
                    f"The intervals between its {len(record.evaluations)} evaluations are those of {pattern} of "
                    "another entry, stretched or shaken by milliseconds; those of two runs differ."
                )
                verdict = _with_finding(record, verdict, "same_pattern", message)
            verdicts.append(verdict)
        marked.append(replace(entry, verdicts=tuple(verdicts)))
    return marked


def _copied_patterns(places: Sequence[tuple[Path, RunRecord]]) -> list[str | None]:
    """For each run the file of an earlier one of another folder whose pattern of times it has, if there is one."""
    copies = time_copies([record for _, record in places])
    return [
        places[copies[at]][1].file if at in copies and places[copies[at]][0] != folder else None
        for at, (folder, _) in enumerate(places)
    ]


def _with_peers(judgements: Sequence[Judgement], table: Callable[[], Sequence[Entry]]) -> list[Judgement]:
    entries = [
        peers.entry_of(one.location, one.records, one.score.benchmark, one.score.division)
        for one in judgements
    ]
    if not any(entries):
        return list(judgements)
    compared, published = [], table()
    found = peers.find_peers_of_each(entries, published)
    for judgement, entry, of_it in zip(judgements, entries, found, strict=True):
        folder = judgement.location.folder
        asked = [] if of_it is None else [peers.finding(folder, of_it)]
        if entry is not None and judgement.score.unit == Unit.EPOCH:
            speed = judgement.score.samples_per_second
            asked.append(peers.implausible_speed(folder, entry, speed, published))
        findings = (*judgement.findings, *(one for one in asked if one is not None))
        compared.append(replace(judgement, peers=of_it or judgement.peers, findings=findings))
    return compared


def _times(record: RunRecord) -> tuple[float | None, ...]:
    """Duration of a run in minutes, and its evaluations in milliseconds from its start."""
    started_ms = record.started_ms or 0
    return (record.minutes, *(evaluated.time_ms - started_ms for evaluated in record.evaluations))


def _with_finding(record: RunRecord, verdict: RunVerdict, check: str, message: str) -> RunVerdict:
    finding = file_finding(record.file, check, message)
    return replace(verdict, findings=(*verdict.findings, finding))
