"""`train-bench referee CONTEST.yaml [CHALLENGER]`: hold a challenger to the frontier of a contest, or verify its
ledger."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench.campaign import ab, comparing, revisions
from train_bench.cli import overrides, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.conclude import say
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.core import git
from train_bench.errors import LogError, RequestError
from train_bench.referee import challenge, ledger
from train_bench.referee import contest as contests
from train_bench.referee.contest import Contest
from train_bench.report import contest as report

ENDINGS = (".yaml", ".yml")


def is_meant(arguments: Sequence[str]) -> bool:
    """True if the first word is the file of a contest."""
    return bool(arguments) and arguments[0].endswith(ENDINGS)


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _parser().parse_args(arguments)
    contest = contests.read(options.contest)
    entries = ledger.read(contest.ledger)
    problems = list(ledger.problems(entries, contest.digest, contest.error))
    if options.challenger is not None:
        if problems:
            raise RequestError(f"{contest.ledger} cannot be continued. {problems[0]}")
        with contextlib.chdir(contest.folder):
            return _challenge(contest, entries, options.challenger, quiet=options.json)
    content = _standing(contest, entries) | {"problems": problems}
    result_output.print_result(content, options.json, report.show_standing)
    return _code(not problems, "the ledger does not verify", as_json=options.json)


def _code(good: bool, why: str, *, as_json: bool) -> int:
    code = VALID if good else INVALID
    return state(code, f"{why}; the output says why.") if as_json else code


def _standing(contest: Contest, entries: Sequence[ledger.Entry]) -> dict[str, Any]:
    """Where a contest stands."""
    return {
        "contest": contest.name,
        "frontier": ledger.frontier(entries) if entries else contest.frontier,
        "challenges": len(ledger.challenges(entries)),
        "records": ledger.records(entries),
        "error": contest.error,
        "next_level": ledger.next_level(entries, contest.error),
        "head": ledger.head(entries),
    }


def _challenge(contest: Contest, entries: list[Any], name: str, *, quiet: bool) -> int:
    tell = (lambda _text: None) if quiet else say
    top = git.top(Path.cwd())
    if top is None:
        raise RequestError(f"{contest.folder} is in no git repository; a contest is a folder of one.")
    overrides.resolve(contest.words)  # the folder of a benchmark is found from now on, by the judge as well
    if not entries:
        opening = git.commit(top, contest.frontier)
        if opening is None:
            raise RequestError(f"There is no revision {contest.frontier}, the frontier of the contest.")
        entries = ledger.append(
            contest.ledger,
            entries,
            ledger.OPENED,
            contest=contest.digest,
            name=contest.name,
            frontier=opening[0],
            at=_now(),
        )
    pending = entries[-1] if entries[-1].get("event") == ledger.BEGUN else None
    number, seed = len(ledger.challenges(entries)) + 1, secrets.randbelow(2**31)
    level = ledger.next_level(entries, contest.error)
    found = git.commit(top, name)
    if pending is not None and found is not None and pending["challenger"] == found[0]:
        number, seed, level = pending["number"], pending["seed"], pending["level"]
    else:
        pending = None
    frontier = ledger.frontier(entries)
    folder = contest.folder / "challenges" / str(number)
    pair = revisions.read((frontier, name), [*contest.words, f"seed={seed}"], contest.pairs, folder)
    changed = _changed(pair, contest)
    if changed:
        raise RequestError(
            f"The challenger changes {', '.join(changed[:5])}, and may change {', '.join(contest.may_change)} alone; "
            "all else is frozen. Nothing was run, and no error spent."
        )
    tell(
        f"challenge {number} at level {level:.3g}: {pair.revisions[1].name} against {pair.revisions[0].name}"
    )
    if pending is None:
        entries = ledger.append(
            contest.ledger,
            entries,
            ledger.BEGUN,
            number=number,
            frontier=frontier,
            challenger=pair.revisions[1].commit,
            level=level,
            seed=seed,
            at=_now(),
        )

    def decide() -> challenge.Decision:
        a, b = (comparing.judge_one(path, None) for path in ab.folders(folder))
        return challenge.decide(contest, a, b, level)

    def decided() -> bool:
        try:
            so_far = decide()
        except LogError:
            return False
        tell(report.progress(so_far.as_json()))
        return so_far.decided

    revisions.alternate(pair, tell, decided)
    found_out = decide()
    entries = ledger.append(
        contest.ledger,
        entries,
        ledger.DECIDED,
        number=number,
        record=found_out.record,
        reasons=report.reasons(found_out.as_json()),
        runs=found_out.runs,
        logs=list(found_out.logs),
        minutes=[list(side) for side in found_out.minutes],
        measured_by=found_out.measured_by,
        at=_now(),
    )
    content = (
        found_out.as_json()
        | {"number": number, "level": level, "challenger": pair.revisions[1].commit}
        | {"standing": _standing(contest, entries)}
    )
    result_output.print_result(content, quiet, report.show_challenge)
    return _code(found_out.record, "the challenger made no record", as_json=quiet)


def _changed(pair: revisions.Pair, contest: Contest) -> list[str]:
    """Frozen files that the challenger changes, by their path from the contest."""
    place = pair.top / pair.place
    names = git.changed(pair.top, *(one.commit for one in pair.revisions))
    return contest.frozen([str(_relative(pair.top / name, place)) for name in names])


def _relative(path: Path, place: Path) -> Path:
    return path.relative_to(place) if path.is_relative_to(place) else path


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _parser() -> Parser:
    parser = Parser("train-bench referee", description=__doc__)
    parser.add_argument("contest", type=Path, metavar="CONTEST", help="the file of a contest")
    parser.add_argument(
        "challenger",
        nargs="?",
        metavar="CHALLENGER",
        help="a revision of the repository; without it, the ledger is verified",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser
