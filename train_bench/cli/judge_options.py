"""Common parts of the commands that read results: their options, the judged tree, the output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train_bench.cli.arguments import Parser
from train_bench.judge import summary
from train_bench.judge.entry import Judgement, judge_entry
from train_bench.judge.published import published_entries
from train_bench.judge.tree import Judged, judge_tree
from train_bench.plan import definition, discover
from train_bench.report.console import make_console


def parser_of_path(verb: str, description: str | None) -> argparse.ArgumentParser:
    parser = Parser(f"train-bench {verb}", description=description)
    parser.add_argument("path", type=Path, metavar="PATH", help="a log, a campaign or any folder above such")
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
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
    path: Path,
    ruleset: str | None,
    table: Path | None = None,
    judge: Callable[..., Judgement] = judge_entry,
) -> Judged:
    """Judge the tree of the options. `table` has published entries besides those that come with train_bench; it is
    read before anything is judged. `judge` is that of `judge_tree`."""
    more = () if table is None else published_entries.read(table)
    return judge_tree(
        path,
        ruleset_name=ruleset,
        rcp_folders=discover.rcp_folders(),
        changes=definition.changes,
        table=lambda: (*published_entries.shipped(), *more),
        judge=judge,
    )


def print_result(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any], Any], None]) -> None:
    if as_json:
        indent = 2 if len(value.get("entries", ())) < 2 else None  # a whole round is for machines
        print(json.dumps(value, indent=indent, allow_nan=False))
    else:
        show(value, make_console())
