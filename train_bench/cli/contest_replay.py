"""Replay of a contest: its challenges are decided again from their logs, and compared with the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train_bench.campaign import ab, comparing, revisions
from train_bench.cli.contest_runs import evidence_of, folder_of
from train_bench.core import files
from train_bench.errors import LogError, RequestError
from train_bench.judge.entry import Judgement
from train_bench.judge.patterns import time_copies
from train_bench.logs.record import RunRecord
from train_bench.referee import challenge, ledger
from train_bench.referee.contest import Contest


@dataclass(slots=True)
class Replay:
    """What does not fit, a sentence each, the challenges that were decided again, and those whose logs are not here."""

    problems: list[str] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    without_logs: list[int] = field(default_factory=list)


def replay(contest: Contest, entries: Sequence[ledger.Entry]) -> Replay:
    """Decide all challenges of a ledger again. A record whose logs are not here is not shown."""
    found = Replay()
    runs: list[tuple[int, RunRecord]] = []
    for entry in entries:
        if entry.get("event") != ledger.DECIDED:
            continue
        number = int(entry["number"])
        folder = folder_of(contest, number)
        if not ab.holds_pair(folder):
            found.without_logs.append(number)
            if entry.get("record") is True:
                found.problems.append(
                    f"Challenge {number} made a record, and {folder} does not have its logs; nothing shows it."
                )
            continue
        begun = next((one for one in ledger.challenges(entries) if one.get("number") == number), None)
        if begun is None:
            found.problems.append(f"Challenge {number} was decided, and the ledger has no beginning of it.")
            continue
        try:
            a, b = (comparing.judge_one(path, None) for path in ab.folders(folder))
            sides = a, b
            core_flops = ledger.core_flops(entries, number)
            found.problems += _differences(contest, folder, begun, entry, sides, core_flops)
        except (LogError, RequestError) as error:
            found.problems.append(f"Challenge {number} cannot be decided again. {error}")
            continue
        found.replayed.append(number)
        runs += [(number, record) for side in sides for record in side.records]
    found.problems += _copies(runs)
    return found


def _differences(
    contest: Contest,
    folder: Path,
    begun: ledger.Entry,
    decided: ledger.Entry,
    sides: tuple[Judgement, Judgement],
    core_flops: float | None,
) -> Iterator[str]:
    """What the files of a challenge say that its lines in the ledger do not."""
    number = decided.get("number")
    note = files.read_object(folder / revisions.NOTE)
    if [note.get("a"), note.get("b")] != [begun.get("frontier"), begun.get("challenger")]:
        yield f"Challenge {number}: {folder} holds runs of other revisions than those of the ledger."
    if f"seed={begun.get('seed')}" not in (note.get("options") or ()):
        yield f"Challenge {number}: the runs in {folder} were begun with another seed than that of the ledger."
    if decided.get("evidence") != evidence_of(folder):
        yield f"Challenge {number}: plans, systems or attempts in {folder} are not those of the ledger; one was edited."
    again = challenge.decide(contest, *sides, begun["level"], core_flops)
    if list(again.logs) != decided.get("logs"):
        yield f"Challenge {number}: the logs in {folder} are not those of the ledger; one was edited, or is another's."
    elif [list(side) for side in again.minutes] != decided.get("minutes") or again.runs != decided.get(
        "runs"
    ):
        yield f"Challenge {number}: its logs have other times than the ledger."
    elif again.gained is not None and again.gained.sides != decided.get("qualities"):
        yield f"Challenge {number}: its logs have other qualities than the ledger."
    if again.record is not decided.get("record"):
        words = {True: "a record", False: "no record"}
        yield (
            f"Challenge {number}: the ledger has {words[decided.get('record') is True]}, and its logs make "
            f"{words[again.record]}."
        )


def _copies(runs: Sequence[tuple[int, RunRecord]]) -> Iterator[str]:
    """Runs of one challenge with the times of a run of an earlier one, whatever else was changed in their logs."""
    first: dict[str, int] = {}
    said = set()
    for number, record in runs:
        if record.times_digest is not None and first.setdefault(record.times_digest, number) != number:
            said.add((number, first[record.times_digest]))
    by_pattern = time_copies([record for _, record in runs])
    said |= {(runs[later][0], runs[earlier][0]) for later, earlier in by_pattern.items()}
    for number, earlier in sorted(said):
        if number != earlier:
            yield f"Challenge {number} has the times of runs of challenge {earlier}; they were replayed."
