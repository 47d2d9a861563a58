"""Derivation of the table of published entries: checkouts of published rounds -> one row for each entry.

Logs are read only for the columns of the table, and no rule is checked: entries that today's checkers refuse were
published all the same.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from train_bench.errors import LogError, RequestError
from train_bench.judge.checks.submission import accelerators_of, stated_divisions
from train_bench.judge.entry import benchmark_of, common_batch_size
from train_bench.judge.locate import Location, find
from train_bench.judge.published import published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.tree import each_of
from train_bench.logs.record import SUCCESS, RunRecord, read_record
from train_bench.logs.timeline import phases_of
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Derived entries in the order of their folders, the number of logs read, and the reasons for skipped entries."""

    entries: tuple[Entry, ...]
    logs: int
    left_out: tuple[str, ...]


def derive(rounds: Sequence[Path], ruleset_name: str | None) -> Derived:
    """Derive every published entry below the folders of `rounds`, which may be checkouts of rounds or folders of such.
    Raises as `find` does."""
    found = [find(path, ruleset_name) for path in rounds]
    by_folder = {location.folder: location for entries in found for location in entries.locations}
    rows = each_of(_row_or_why_not, list(by_folder.values()), "reading")
    entries = tuple(row for row in rows if isinstance(row, Entry))
    if not entries:
        raise LogError(" ".join(("There is no published entry.", *(str(row) for row in rows))))
    _refuse_copies(entries)
    return Derived(
        entries=entries,
        logs=sum(len(location.files) for location in by_folder.values()),
        left_out=(
            *(why for entries in found for why in (*entries.unjudged, *entries.skipped)),
            *(row for row in rows if isinstance(row, str)),
        ),
    )


def _row_or_why_not(location: Location) -> Entry | str:
    try:
        return _row(location)
    except (LogError, RequestError) as error:
        return str(error)


def _row(location: Location) -> Entry:
    if location.submitter is None or location.system is None:
        raise LogError(
            f"{location.folder} does not have the layout SUBMITTER/results/SYSTEM/BENCHMARK of published "
            "results."
        )
    rounds = ruleset.load(location.ruleset)
    rules = rounds.benchmark(benchmark_of(location, rounds))
    if rules.strict:
        raise LogError(f"{location.folder} is of {rules.ruleset}, which is not a published round.")
    records: list[RunRecord] = []
    shares: list[float] = []
    for file in location.files:
        record, log = read_record(file, rules)
        records.append(record)
        phases = phases_of(record, log.events)
        if record.status == SUCCESS and record.minutes and phases and phases.evaluation is not None:
            shares.append(phases.evaluation / record.minutes)
    converged = [record for record in records if record.status == SUCCESS]
    minutes = published_entries.minutes_of(records, rules)
    if minutes is None:
        raise LogError(
            f"{location.folder} has no score: {len(converged)} of {len(records)} runs reached the target; "
            f"the round requires {rules.runs}."
        )
    batch_size = common_batch_size(records, rules)
    accelerators, accelerator = accelerators_of(location)
    stated = stated_divisions(location, records)
    row = Entry(
        round=published_entries.round_of_ruleset(rules.ruleset),
        submitter=location.submitter,
        system=location.system,
        benchmark=rules.name,
        division=stated[0] if stated else None,
        accelerators=accelerators,
        accelerator=accelerator,
        global_batch=batch_size,
        samples_to_target=samples_to_target(records, rules),
        minutes=minutes,
        eval_share=_median(shares),
        init_minutes=_median(record.init_minutes for record in records),
        runs=len(records),
    )
    return published_entries.rounded(row)


def samples_to_target(records: Iterable[RunRecord], rules: BenchmarkRules) -> float | None:
    """Mean samples to the target over the runs that reached it."""
    return _mean(
        published_entries.samples_of(record, rules) for record in records if record.status == SUCCESS
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _refuse_copies(entries: Sequence[Entry]) -> None:
    counts = Counter((entry.round, entry.submitter, entry.system, entry.benchmark) for entry in entries)
    twice = [" ".join(name) for name, count in counts.items() if count > 1]
    if twice:
        raise RequestError(f"{twice[0]} is in two of the folders; give each round once.")
