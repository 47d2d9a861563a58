"""Runs of a contest: the frontier against itself, a challenger against the frontier, and a record again."""

from __future__ import annotations

import hashlib
import platform
import re
import secrets
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench.campaign import ab, challenger_source, comparing, revisions
from train_bench.cli.conclude import say
from train_bench.compare.comparison import LEAST_RUNS, logs_of, pairs_of
from train_bench.compare.quality_gate import only_threshold
from train_bench.core import files, git
from train_bench.errors import LogError, RequestError
from train_bench.judge.statistics import ALPHA, student_probability
from train_bench.own_trainer.confined import SHARED_MEMORY, Confinement, can_confine
from train_bench.referee import challenge as challenges
from train_bench.referee import fixed_budget, ledger
from train_bench.referee.contest import Contest, least_difference_at, least_gain_at
from train_bench.referee.work_bound import measured_core_flops
from train_bench.report import contest as report

HOLDS, REFUTED, UNDECIDED = "holds", "refuted", "undecided"

Tell = Callable[[str], None]


class Book:
    """The ledger of a contest, to be continued. Raises `RequestError` for one that does not verify."""

    def __init__(self, contest: Contest) -> None:
        self._path = contest.ledger
        self.entries: Sequence[ledger.Entry] = ledger.read(self._path)
        for problem in ledger.problems(self.entries, contest.digest, contest.error):
            raise RequestError(f"{self._path} cannot be continued. {problem}")

    def add(self, event: str, **content: Any) -> None:
        """Add a line."""
        self.entries = ledger.append(self._path, self.entries, event, **content, at=now().isoformat())

    def abandon(self, why: str) -> None:
        """Note the end of the challenge that is under way, if there is one."""
        if (pending := ledger.pending(self.entries)) is not None:
            self.add(ledger.ABANDONED, number=pending["number"], reason=why)

    def of(self, event: str) -> list[ledger.Entry]:
        """Lines of a kind."""
        return [entry for entry in self.entries if entry.get("event") == event]


def now() -> datetime:
    """The time, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def folder_of(contest: Contest, name: object) -> Path:
    """Folder of a challenge by its number, or of other runs by their name."""
    return contest.folder / "challenges" / str(name)


def standing(contest: Contest, entries: Sequence[ledger.Entry]) -> dict[str, Any]:
    """Where a contest stands."""
    pending = ledger.pending(entries)
    return {
        "contest": contest.name,
        "frontier": ledger.frontier(entries) if entries else contest.frontier,
        "challenges": len(ledger.challenges(entries)),
        "records": ledger.records(entries),
        "for_review": [
            entry["number"] for entry in entries if entry.get("record") is True and entry.get("questions")
        ],
        "refutations": [dict(entry) for entry in entries if entry.get("event") == ledger.AGAIN],
        "pending": None if pending is None else dict(pending),
        "error": contest.error,
        "next_level": ledger.next_level(entries, contest.error),
        "head": ledger.head(entries),
        "table": [_row(entries, begun) for begun in ledger.challenges(entries)],
    }


def _row(entries: Sequence[ledger.Entry], begun: ledger.Entry) -> dict[str, Any]:
    """A challenge, and how it ended."""
    number, ends = begun["number"], (ledger.DECIDED, ledger.ABANDONED)
    end = next((one for one in entries if one["event"] in ends and one["number"] == number), {})
    words = {
        ledger.DECIDED: "RECORD" if end.get("record") else "NO RECORD",
        ledger.ABANDONED: "ABANDONED",
    }
    return {
        "number": number,
        "challenger": begun["challenger"],
        "level": begun["level"],
        "end": words.get(end.get("event", ""), "UNDER WAY"),
        "runs": end.get("runs", 0),
        "minutes": end.get("minutes", [[], []]),
        "qualities": end.get("qualities"),
        "reasons": end.get("reasons", [end["reason"]] if "reason" in end else []),
        "questions": end.get("questions", []),
    }


def challenge(
    contest: Contest, book: Book, name: str, here: Path, *, quiet: bool, trusted: bool
) -> dict[str, Any]:
    """Hold a challenger, whose path begins `here`, to the frontier; the object of `referee CONTEST CHALLENGER --json`,
    but for the standing. Its `end` is None where further sessions are due."""
    tell, top = _teller(quiet), _opened(contest, book)
    frontier = ledger.frontier(book.entries)
    commit = challenger_source.commit_of(top, contest.folder, name, frontier, here)
    pending = ledger.pending(book.entries)
    goes_on = pending is not None and pending.get("challenger") == commit
    if pending is not None and goes_on:
        number, seed, level = pending["number"], pending["seed"], pending["level"]
    else:
        number, seed = len(ledger.challenges(book.entries)) + 1, secrets.randbelow(2**31)
        level = ledger.next_level(book.entries, contest.error)
    pair = _pair(contest, (frontier, commit), folder_of(contest, number), seed)
    _refuse_frozen(pair, contest)
    foreign = _foreign(contest, pair)
    _refuse_untrusted(pair, foreign, trusted=trusted)
    if contest.aa_pairs and not goes_on:
        tell(report.least(measure(contest, book, quiet=quiet, trusted=trusted)))
    tell(
        f"challenge {number} at level {level:.3g}: {pair.revisions[1].name} against {pair.revisions[0].name}"
    )
    if not goes_on:
        book.abandon("another challenge was begun")
        book.add(ledger.BEGUN, number=number, frontier=frontier, challenger=commit, level=level, seed=seed)
    _count_interrupted(book, pair, number, tell)
    upto = _begin_session(contest, book, pair, number, foreign, tell)

    def began(side: str, index: int) -> None:
        book.add(ledger.RUN, number=number, side=side, index=index)

    def begun(side: str, index: int) -> bool:
        return index in ledger.runs(book.entries, number, side)

    core_flops = ledger.core_flops(book.entries, number)
    found = _run(contest, pair, foreign, level, tell, began, upto, core_flops, begun)
    content = found.as_json() | {
        "number": number,
        "level": level,
        "challenger": commit,
        "end": None,
        **_confinement(book, number),
    }
    if upto < contest.pairs and not found.decided:
        return content | {"sessions": [upto * contest.sessions // contest.pairs, contest.sessions]}
    book.add(
        ledger.DECIDED,
        number=number,
        record=found.record,
        reasons=report.reasons(found.as_json()),
        questions=list(found.questions),
        runs=found.runs,
        logs=list(found.logs),
        **_results(found),
        evidence=evidence_of(pair.folder),
        measured_by=found.measured_by,
    )
    return content | {"end": ledger.DECIDED}


def measure(contest: Contest, book: Book, *, quiet: bool, trusted: bool) -> dict[str, Any]:
    """Least gains that this host shows with the pairs of the contest, by pairs of runs of the frontier with itself,
    which are made once for each frontier and host. Raises `RequestError` where too few of them reach the target, and
    for a frontier that is not trusted, a challenger's code, where nothing confines it."""
    tell, _ = _teller(quiet), _opened(contest, book)
    frontier, host = ledger.frontier(book.entries), platform.node()
    measured = "logarithms" if contest.budget is None else "qualities"
    known = [
        one
        for one in book.of(ledger.AA)
        if (one.get("frontier"), one.get("host")) == (frontier, host) and measured in one
    ]
    if not known:
        known = [_measured(contest, book, frontier, host, tell, trusted=trusted)]
    differences, values = known[-1]["differences"], known[-1][measured]
    least = least_gain_at if contest.budget is None else least_difference_at
    level = ledger.next_level(book.entries, contest.error)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    statistic = abs(statistics.fmean(differences)) / error if error else 0.0
    between = statistics.fmean(map(statistics.variance, values)) * 2
    return {
        "host": host,
        "pairs": len(differences),
        "of": contest.pairs,
        "level": level,
        "gain": contest.gain,
        "metric": known[-1].get("metric"),
        "budget": contest.budget,
        "unit": known[-1].get("unit"),
        "least_gain": least(statistics.stdev(differences), contest.pairs, level),
        "least_gain_of_other_runs": least(between**0.5, contest.pairs, level),
        "p": 2 * student_probability(len(differences) - 1, -statistic),
    }


def _measured(
    contest: Contest, book: Book, frontier: str, host: str, tell: Tell, *, trusted: bool
) -> ledger.Entry:
    """Pairs of the frontier with itself, as a line of the ledger."""
    folder = folder_of(contest, f"aa_{frontier[:8]}_{re.sub(r'[^A-Za-z0-9.-]', '_', host)}")
    begun = [
        word for word in files.read_object(folder / revisions.NOTE).get("options", ()) if "seed=" in word
    ]
    seed = begun[-1].partition("=")[2] if begun else secrets.randbelow(2**31)
    top = _opened(contest, book)
    one = revisions.read_one(top, frontier)
    pair = revisions.pair_of(top, (one, one), [*contest.words, f"seed={seed}"], contest.aa_pairs, folder)
    opened, foreign = str(book.entries[0].get("frontier")), _foreign(contest, pair)
    _refuse_untrusted(pair, foreign, trusted=trusted or frontier == opened, since=opened)
    tell(f"A/A: {contest.aa_pairs} pairs of the frontier {one.name} with itself on {host}")
    revisions.alternate(pair, tell, lambda: False, foreign=foreign)
    sides = [comparing.judge_one(path, None) for path in ab.folders(folder)]
    content: dict[str, Any] = {}
    if contest.budget is None:
        a, b, _ = pairs_of(*(side.score for side in sides))
        values = [logs_of(runs, "minutes") or [] for runs in (a, b)]
        content, where = {"logarithms": values}, "reach the target"
    else:
        pairs = [pair for pair in fixed_budget.pairs_at_budget(contest, *sides) if None not in pair]
        values = [[pair[side] or 0.0 for pair in pairs] for side in (0, 1)]
        content = {"qualities": values, "unit": str(sides[0].score.unit)}
        content["metric"] = only_threshold(sides[0]).metric
        where = f"have a quality at {content['unit']} {contest.budget:g}"
    if len(values[0]) < LEAST_RUNS or not all(values):
        raise RequestError(
            f"{len(values[0])} of {contest.aa_pairs} pairs of the frontier {where} on this host, and at least "
            f"{LEAST_RUNS} are needed; `train-bench judge {folder}` says why. No error was spent. Remove {folder} to "
            "run them again."
        )
    book.add(
        ledger.AA,
        frontier=frontier,
        host=host,
        differences=[other - one for one, other in zip(*values, strict=True)],
        **content,
    )
    return book.entries[-1]


def refute(contest: Contest, book: Book, number: int | None, *, quiet: bool, trusted: bool) -> dict[str, Any]:
    """Run a record again, against the frontier that it beat, with seeds of its own; spends no error and changes no
    frontier. The object of `referee refute --json`."""
    tell, made = _teller(quiet), ledger.records(book.entries)
    if number is None and made:
        number = made[-1]
    if number is None or number not in made:
        raise RequestError(
            f"Challenge {number or ''} made no record; {contest.name} has records "
            f"{', '.join(map(str, made)) or 'of no challenge'}."
        )
    begun = next(one for one in ledger.challenges(book.entries) if one.get("number") == number)
    times = sum(one.get("number") == number for one in book.of(ledger.AGAIN))
    folder = folder_of(contest, f"{number}_again_{times + 1}")
    options = files.read_object(folder / revisions.NOTE).get("options", ())
    seeds = [word.partition("=")[2] for word in options if word.startswith("seed=")]
    pair = _pair(
        contest,
        (begun["frontier"], begun["challenger"]),
        folder,
        seeds[-1] if seeds else secrets.randbelow(2**31),
    )
    _opened(contest, book)
    foreign = _foreign(contest, pair)
    _refuse_untrusted(pair, foreign, trusted=trusted)
    tell(f"record {number} again: {pair.revisions[1].name} against {pair.revisions[0].name}")
    alone = replace(contest, sessions=1)
    found = _run(
        *(alone, pair, foreign, ALPHA, tell),
        lambda side, index: None,
        contest.pairs,
        measured_core_flops() if contest.flop_per_sample is not None else None,
    )
    verdict = HOLDS if found.record else UNDECIDED
    if found.refuted:
        verdict = REFUTED
    book.add(
        ledger.AGAIN,
        number=number,
        verdict=verdict,
        host=platform.node(),
        runs=found.runs,
        logs=list(found.logs),
        **_results(found),
        evidence=evidence_of(folder),
    )
    return found.as_json() | {
        "number": number,
        "level": ALPHA,
        "verdict": verdict,
        "confined": foreign.confined,
        "network": foreign.network,
        "standing": standing(contest, book.entries),
    }


def _results(found: challenges.Decision) -> dict[str, Any]:
    """Times of both sides, and at a budget their qualities, as the ledger has them."""
    at_budget = {} if found.gained is None else {"qualities": found.gained.sides}
    return {"minutes": [list(side) for side in found.minutes], **at_budget}


def evidence_of(folder: Path) -> str:
    """Digest of what the judge reads beside the logs of a challenge: plans, systems and attempts."""
    whole = hashlib.sha256()
    for side in ab.folders(folder):
        for path in sorted((side / "plan.json", side / "system.json", *side.glob("attempts/run_*.json"))):
            if path.is_file():
                whole.update(f"{path.relative_to(folder)} {files.digest(path)}\n".encode())
    return whole.hexdigest()


def _teller(quiet: bool) -> Tell:
    return (lambda _text: None) if quiet else say


def _opened(contest: Contest, book: Book) -> Path:
    """Top of the contest's repository; its ledger is begun if it is not."""
    top = git.top(contest.folder)
    if top is None:
        raise RequestError(f"{contest.folder} is in no git repository; a contest is a folder of one.")
    if not book.entries:
        opening = git.commit(top, contest.frontier)
        if opening is None:
            raise RequestError(f"There is no revision {contest.frontier}, the frontier of the contest.")
        book.add(ledger.OPENED, contest=contest.digest, name=contest.name, frontier=opening[0])
    return top


def _pair(contest: Contest, names: Iterable[str], folder: Path, seed: object) -> revisions.Pair:
    return revisions.read(list(names), [*contest.words, f"seed={seed}"], contest.pairs, folder)


def _refuse_frozen(pair: revisions.Pair, contest: Contest) -> None:
    """Raise `RequestError` for a challenger that changes frozen files, or adds links."""
    place = pair.top / pair.place
    commits = [one.commit for one in pair.revisions]

    def here(names: Iterable[str]) -> list[str]:
        paths = [pair.top / name for name in names]
        return [str(path.relative_to(place) if path.is_relative_to(place) else path) for path in paths]

    for what, names in (
        ("changes", contest.frozen(here(git.changed(pair.top, *commits)))),
        ("has links or submodules:", here(git.links(pair.top, *commits))),
    ):
        if names:
            raise RequestError(
                f"The challenger {what} {', '.join(names[:5])}, and may change {', '.join(contest.may_change)} alone; "
                "all else is frozen. Nothing was run, and no error spent."
            )


def _foreign(contest: Contest, pair: revisions.Pair) -> revisions.Foreign:
    """Whether this system confines the runs of a contest, and whether they have the network. Raises `RequestError` for
    files that a confined run would not find."""
    for what, path in _named_places(pair):
        if path.resolve().is_relative_to(SHARED_MEMORY) and can_confine(
            Confinement(read_only=(), network=contest.network)
        ):
            raise RequestError(
                f"{what} is {path}, and the runs of a contest have an empty {SHARED_MEMORY} of their own; move it to "
                "another folder. Nothing was run, and no error spent."
            )
    wanted = Confinement(read_only=revisions.frozen_folders(pair), network=contest.network)
    confined = can_confine(wanted)
    return revisions.Foreign(confined=confined, network=contest.network or not confined)


def _named_places(pair: revisions.Pair) -> list[tuple[str, Path]]:
    """The repository, and the folder of the data where the contest names one."""
    folders = [word.partition("=")[2] for word in pair.words if word.startswith("data_dir=")]
    return [("The repository", pair.top), *(("data_dir", Path(folder)) for folder in folders)]


def _refuse_untrusted(
    pair: revisions.Pair, foreign: revisions.Foreign, *, trusted: bool, since: str | None = None
) -> None:
    """Raise `RequestError` for code that nothing confines, or that has the network, unless it is trusted: what changed
    `since` a commit, by default since that of the first side."""
    if trusted or not foreign.network:
        return
    why = "the contest gives its runs the network"
    if not foreign.confined:
        why = "this system has no user namespaces that would keep it from the network and from the repository"
    one, other = (name[:8] for name in (since or pair.revisions[0].commit, pair.revisions[1].commit))
    raise RequestError(
        f"A challenger is foreign code that runs as you, and {why}. Read git diff {one} {other}, and add --trust to "
        "run it. Nothing was run, and no error spent."
    )


def _confinement(book: Book, number: int) -> dict[str, bool]:
    """How all runs of a challenge were confined, by its sessions."""
    of_this = [one for one in book.of(ledger.SESSION) if one["number"] == number]
    return {
        "confined": all(one["confined"] for one in of_this),
        "network": any(one["network"] for one in of_this),
    }


def _count_interrupted(book: Book, pair: revisions.Pair, number: int, tell: Tell) -> None:
    """Runs of the challenger that an earlier call began and that have no log count as failed."""
    begun = ledger.runs(book.entries, number, ledger.CHALLENGER)
    campaign = pair.folder / ledger.CHALLENGER
    if begun and not (campaign / "plan.json").exists():
        raise RequestError(
            f"Challenge {number} has begun runs of the challenger, and {campaign} has no campaign; --abandon ends the "
            "challenge."
        )
    for index in revisions.count_as_failed(pair.folder, ledger.CHALLENGER, begun):
        tell(f"run {index} of the challenger was interrupted; it counts as failed, and is not repeated")


def _begin_session(
    contest: Contest,
    book: Book,
    pair: revisions.Pair,
    number: int,
    foreign: revisions.Foreign,
    tell: Tell,
) -> int:
    """Note the session of this call; returns the number of pairs that there are at its end. Raises `RequestError` on a
    host or day of which it cannot be."""
    each = contest.pairs // contest.sessions
    whole = sum(
        all((path / f"result_{index}.txt").exists() for path in ab.folders(pair.folder))
        for index in range(contest.pairs)
    )
    session = min(whole // each, contest.sessions - 1)
    host, day = platform.node(), now().date().isoformat()
    earlier = [one for one in book.of(ledger.SESSION) if one.get("number") == number]
    of_this = [one for one in earlier if one.get("session") == session]
    if of_this and of_this[-1].get("host") != host:
        raise RequestError(
            f"Challenge {number} goes on on {of_this[-1].get('host')}, where its session began; this is {host}."
        )
    how = {"confined": foreign.confined, "network": foreign.network}
    if not of_this or any(of_this[-1].get(name) != value for name, value in how.items()):
        if not of_this and any((one.get("host"), one.get("day")) == (host, day) for one in earlier):
            raise RequestError(
                f"Session {session + 1} of challenge {number} has to be on another host or day (UTC) than those before "
                f"it; this is {host} on {day}. Nothing was run."
            )
        book.add(
            ledger.SESSION,
            number=number,
            session=session,
            host=host,
            day=day,
            **how,
            core_flops=measured_core_flops() if contest.flop_per_sample is not None else None,
        )
    if contest.sessions > 1:
        tell(f"session {session + 1} of {contest.sessions}, on {host}")
    return (session + 1) * each


def _run(
    contest: Contest,
    pair: revisions.Pair,
    foreign: revisions.Foreign,
    level: float,
    tell: Tell,
    began: Callable[[str, int], None],
    upto: int,
    core_flops: float | None,
    begun: Callable[[str, int], bool] | None = None,
) -> challenges.Decision:
    """Run both sides in turns until it is decided, or `upto` so many pairs are made."""

    def decide() -> challenges.Decision:
        a, b = (comparing.judge_one(path, None) for path in ab.folders(pair.folder))
        return challenges.decide(contest, a, b, level, core_flops)

    def decided() -> bool:
        if contest.sessions > 1:
            return False  # a session is whole
        try:
            so_far = decide()
        except LogError:
            return False
        tell(report.progress(so_far.as_json()))
        return so_far.decided

    revisions.alternate(
        pair, tell, decided, began=began, may_fail=ledger.CHALLENGER, upto=upto, foreign=foreign, begun=begun
    )
    return decide()
