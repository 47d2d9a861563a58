"""Scores over dates and revisions, of campaigns and rounds that a store has."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from train_bench.errors import RequestError
from train_bench.exit_codes import VALID
from train_bench.plan import discover
from train_bench.report import history as report
from train_bench.report import table
from train_bench.store import history


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    path = discover.store(options.store)
    if options.sql is not None:
        if options.filters:
            raise RequestError("--sql says itself what it asks for; leave the filters out.")
        columns, rows = history.select(path, options.sql)
        if options.json:
            print(json.dumps({"columns": columns, "rows": rows}, indent=2, allow_nan=False))
        elif options.csv:
            print(report.rows_as_csv(columns, rows), end="")
        else:
            report.show_rows(columns, rows, table.console())
        return VALID
    told = history.history(path, options.filters)
    if options.json:
        print(json.dumps(told, allow_nan=False))
    elif options.csv:
        print(report.as_csv(told), end="")
    else:
        report.show(told, table.console())
    return VALID


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "train-bench history",
        description="Scores over dates and revisions, of campaigns and rounds that a store has. A line has results of "
        "the same task on the same system with the same launcher, ranks, device and precision; published entries of "
        "the same benchmark and target, submitter, kind of accelerator and number of these. What is not valid, or a "
        "copy, is marked and joined with nothing.",
    )
    names = ", ".join(history.FILTERS)
    parser.add_argument(
        "filters", nargs="*", metavar="NAME=VALUE", help=f"only results of which this holds: {names}"
    )
    parser.add_argument(
        "--store", metavar="FILE", help="the store; that in the user's data folder without it"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="one row for each result, as comma-separated values")
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument(
        "--sql", metavar="SELECT", help="a query of your own; the tables are entries and logs"
    )
    return parser.parse_args(arguments)
