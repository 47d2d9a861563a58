"""Common parts of the commands that read results: their options, the judged tree, the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from train_bench.cli import campaign_paths, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.errors import NoLogs
from train_bench.judge import loadgen_folders as folders
from train_bench.judge import locate, summary
from train_bench.judge.entry import Judgement, judge_entry
from train_bench.judge.locate import Entries
from train_bench.judge.published import published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.state import INCOMPLETE, NOT_VALID
from train_bench.judge.tree import Judged, judge_found
from train_bench.plan import definition, discover


def parser_of_paths(verb: str, description: str | None) -> argparse.ArgumentParser:
    parser = Parser(f"train-bench {verb}", description=description)
    campaign_paths.add_argument(parser)
    shared_options.add_ruleset(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument(
        "--published",
        type=Path,
        metavar="TABLE",
        help="published entries to compare with besides those that are known (train-bench index published)",
    )
    return parser


def summary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference-results", type=Path, metavar="FILE", help="JSON of benchmark -> minutes to normalise to"
    )
    parser.add_argument(
        "--summary",
        metavar="WEIGHTS",
        nargs="?",
        const="",
        help="weighted geometric mean of all results; BENCHMARK=NUMBER,... weighs them",
    )


def reference_minutes(options: argparse.Namespace) -> dict[str, float] | None:
    return summary.read_reference_results(options.reference_results) if options.reference_results else None


def judged_tree(
    paths: Sequence[Path],
    ruleset: str | None,
    table: Path | None = None,
    judge: Callable[..., Judgement] = judge_entry,
) -> Judged:
    """Judge the trees of the options. `table` has published entries besides those that come with train_bench; it is
    read before anything is judged. `judge` is that of `judge_found`."""
    more = () if table is None else published_entries.read(table)
    try:
        found = [locate.find(path, ruleset) for path in paths]
    except NoLogs as error:
        served = next(filter(folders.has_tests, paths), None)
        if served is None:
            raise
        page = served / folders.PAGE
        shown = f"; their page is {page}" if page.is_file() else ""
        raise NoLogs(
            f"{error} LoadGen tests are there: judge them with train-bench judge {served}{shown}."
        ) from error
    return judged_entries(found, more, judge)


def judged_entries(
    found: Sequence[Entries],
    published: Sequence[Entry] = (),
    judge: Callable[..., Judgement] = judge_entry,
) -> Judged:
    """Judge entries that were found; `published` are entries besides those that come with train_bench."""
    return judge_found(
        found,
        rcp_folders=discover.rcp_folders(),
        changes=definition.changes,
        table=lambda: (*published_entries.shipped(), *published),
        judge=judge,
    )


def exit_code(judged: Judged, *, stated: bool) -> int:
    """Exit code of judged results. One other than 0 comes with its sentence, on standard error unless the output has
    `stated` the verdicts in words."""
    if judged.valid:
        return VALID
    if stated:
        return INVALID
    missing = sum(entry.score.state == INCOMPLETE for entry in judged.entries)
    wrong = sum(not entry.score.valid for entry in judged.entries) - missing
    counts = [
        f"{count} of {len(judged.entries)} result(s) are {what}"
        for count, what in ((wrong, NOT_VALID), (missing, INCOMPLETE))
        if count
    ]
    unjudged = [f"{len(judged.unjudged)} cannot be judged"] if judged.unjudged else []
    return state(INVALID, f"{', and '.join((*counts, *unjudged))}.")
