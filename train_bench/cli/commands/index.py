"""Keep what campaigns, sweeps and rounds came to in a store for train-bench history; or, with `published` as the first
word, write a table of the entries of published rounds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from train_bench.cli import campaign_paths, judge_options, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.core.escape import plain
from train_bench.errors import RequestError
from train_bench.judge.published import derive, published_entries
from train_bench.plan import discover
from train_bench.report.console import make_console, print_line
from train_bench.store import feed, schema

SHOWN = 10
"""More sentences of a kind than these are printed with --json only."""


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    if arguments[:1] == ["published"]:
        return _published(_options_of_published(arguments[1:]))
    return _index(_options(arguments))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "train-bench index",
        description="Judge everything below folders and keep the results in a store (one file), in place of what it "
        "has of the same folders. The logs stay where they are. Logs that changed since they were indexed are named.",
        epilog="train-bench index published ROUND_DIR ... --to FILE writes a table of published entries; it has a "
        "--help of its own. A folder of that name is ./published.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        action=campaign_paths.Expand,
        metavar="DIR",
        help=f"campaigns, sweeps, rounds or folders above, {campaign_paths.HELP}",
    )
    shared_options.add_store(parser)
    shared_options.add_ruleset(parser)
    parser.add_argument(
        "--forget-missing", action="store_true", help="remove what the store has of folders without a log"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args(arguments)


def _index(options: argparse.Namespace) -> int:
    path = discover.store(options.store)
    for one in options.paths:
        if one.is_file():
            raise RequestError(
                f"{one} is a file; index takes folders, because the logs of an entry belong together."
            )
    trees = [judge_options.judged_tree((one,), options.ruleset) for one in options.paths]
    with schema.to_write(path) as connection:
        fed = feed.put_all(
            connection,
            (entry for tree in trees for entry in tree.entries),
            options.paths,
            forget=options.forget_missing,
        )
    left_out = [why for tree in trees for why in (*tree.unjudged, *tree.skipped)]
    if options.json:
        print(json.dumps({"store": str(path), **asdict(fed), "left_out": left_out}, indent=2))
    else:
        _tell("left out", left_out)
        _tell("changed", fed.changed)
        _tell("gone", fed.gone)
        print(plain(f"{path} has entries of these folders: {fed.entries}, from {fed.logs} log(s)."))
    if not fed.changed:
        return VALID
    return state(INVALID, f"{len(fed.changed)} log(s) changed since they were ingested.")


def _tell(what: str, sentences: Sequence[str]) -> None:
    for sentence in sentences[:SHOWN]:
        print_line(make_console(), f"{what}: {sentence}")
    if len(sentences) > SHOWN:
        print(f"{what}: {len(sentences) - SHOWN} others (--json has them)")


def _options_of_published(arguments: Sequence[str]) -> argparse.Namespace:
    about = "What each entry of published rounds trained on, how many samples it needed and how long it took, as CSV."
    parser = Parser("train-bench index published", description=about)
    parser.add_argument(
        "rounds",
        nargs="+",
        type=Path,
        metavar="ROUND_DIR",
        help="checkout of a round (SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt, SUBMITTER/systems/SYSTEM.json)",
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help="file of the table; an earlier one is replaced"
    )
    shared_options.add_ruleset(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args(arguments)


def _published(options: argparse.Namespace) -> int:
    shared_options.refuse_no_file(options.to, "published.csv")
    derived = derive.derive(options.rounds, options.ruleset)
    published_entries.write(options.to, derived.entries)
    rounds = sorted({entry.round for entry in derived.entries})
    if options.json:
        content = {
            "table": str(options.to),
            "entries": len(derived.entries),
            "logs": derived.logs,
            "rounds": rounds,
            "left_out": derived.left_out,
        }
        print(json.dumps(content, indent=2))
        return VALID
    _tell("left out", derived.left_out)
    print(
        f"{options.to} holds entries of {', '.join(rounds)}: {len(derived.entries)}, from {derived.logs} log(s)."
    )
    return VALID
