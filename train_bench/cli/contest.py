"""A contest: hold a CHALLENGER to its frontier, or verify its ledger; `referee refute CONTEST` runs a record again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import lock
from train_bench.cli import contest_runs, overrides, result_output, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.contest_replay import replay
from train_bench.cli.contest_runs import Book
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID, state
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.referee import contest as contests
from train_bench.referee import ledger
from train_bench.referee.contest import Contest
from train_bench.report import contest as report
from train_bench.report.page import write

ENDINGS = (".yaml", ".yml")
REFUTE = "refute"


def is_meant(arguments: Sequence[str]) -> bool:
    """True if the first word is the file of a contest, or it comes behind `refute`."""
    words = arguments[1:] if arguments[:1] == [REFUTE] else arguments
    return bool(words) and words[0].endswith(ENDINGS)


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    if arguments[0] == REFUTE:
        return _refute(_parser_of_refute().parse_args(arguments[1:]))
    options = _parser().parse_args(arguments)
    shared_options.refuse_no_file(options.to, "contest.html")
    contest = contests.read(options.contest)
    quiet = options.json
    if options.challenger is None and not options.abandon and not options.aa:
        return _verify(contest, options)
    if options.to is not None and (options.challenger is not None or options.aa):
        raise RequestError(
            "--to writes a page of a ledger that is verified; give it without a challenger and without --aa."
        )
    here = Path.cwd()
    with _held(contest):
        book = Book(contest)
        if options.abandon:
            book.abandon("it was given up")
        if options.challenger is not None:
            content = contest_runs.challenge(
                contest, book, options.challenger, here, quiet=quiet, trusted=options.trust
            )
            content["standing"] = contest_runs.standing(contest, book.entries)
            result_output.print_result(content, quiet, report.show_challenge)
            if content["end"] is None:
                return state(CANNOT_TELL, "a session is over, others are due.") if quiet else CANNOT_TELL
            return _code(content["record"], "the challenger made no record", as_json=quiet)
        if options.aa:
            content = contest_runs.measure(contest, book, quiet=quiet, trusted=options.trust)
            result_output.print_result(content, quiet, report.show_least)
            return VALID
    return _verify(contest, options)


@contextlib.contextmanager
def _held(contest: Contest) -> Any:
    """The contest for this process alone, in its folder."""
    with (
        lock.held(contest.folder / "ledger.lock", f"The contest {contest.name}"),
        contextlib.chdir(contest.folder),
    ):
        overrides.resolve(
            contest.words
        )  # the folder of a benchmark is found from now on, by the judge as well
        yield


def _verify(contest: Contest, options: Any) -> int:
    entries = ledger.read(contest.ledger)
    problems = list(ledger.problems(entries, contest.digest, contest.error))
    with contextlib.chdir(contest.folder):
        if contest_runs.folder_of(contest, "").is_dir():  # a ledger alone needs no benchmark
            overrides.resolve(contest.words)
        again = replay(contest, entries)
    content = contest_runs.standing(contest, entries) | {
        "problems": [*problems, *again.problems],
        "replayed": again.replayed,
        "without_logs": again.without_logs,
    }
    if options.to is not None:
        files.write(options.to, write.referee_page(content))
    result_output.print_result(content, options.json, report.show_standing)
    return _code(not content["problems"], "the ledger does not verify", as_json=options.json)


def _refute(options: Any) -> int:
    contest = contests.read(options.contest)
    with _held(contest):
        content = contest_runs.refute(
            contest, Book(contest), options.number, quiet=options.json, trusted=options.trust
        )
    result_output.print_result(content, options.json, report.show_refutation)
    code = {contest_runs.HOLDS: VALID, contest_runs.REFUTED: INVALID}.get(content["verdict"], CANNOT_TELL)
    return state(code, "the output says why.") if options.json else code


def _code(good: bool, why: str, *, as_json: bool) -> int:
    code = VALID if good else INVALID
    return state(code, f"{why}; the output says why.") if as_json else code


def _parser() -> Parser:
    parser = Parser("train-bench referee", description=__doc__)
    parser.add_argument("contest", type=Path, metavar="CONTEST", help="the file of a contest")
    parser.add_argument(
        "challenger",
        nargs="?",
        metavar="CHALLENGER",
        help="a revision of the repository, a patch or a folder of files; without it, the ledger is verified",
    )
    parser.add_argument(
        "--aa",
        action="store_true",
        help="run the frontier against itself alone: the least gain that this host shows",
    )
    parser.add_argument(
        "--abandon",
        action="store_true",
        help="end the challenge that was interrupted; its level stays spent",
    )
    _add_trust(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page of a ledger that is verified")
    return parser


def _parser_of_refute() -> Parser:
    parser = Parser("train-bench referee refute", description=__doc__)
    parser.add_argument("contest", type=Path, metavar="CONTEST", help="the file of a contest")
    parser.add_argument(
        "number",
        nargs="?",
        type=int,
        metavar="NUMBER",
        help="number of a challenge that made a record; the last",
    )
    _add_trust(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _add_trust(parser: Parser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run the challenger's code though nothing confines it, or the contest gives it the network",
    )
