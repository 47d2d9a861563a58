"""Scores over dates and revisions, of campaigns and rounds that a store has."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.cli import shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.report import history as report
from train_bench.report.console import make_console
from train_bench.store import history


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    path = discover.store(options.store)
    _refuse_contradictions(options)
    if options.sql is not None:
        columns, rows = history.select(path, options.sql)
        if options.json:
            print(json.dumps({"columns": columns, "rows": rows}, indent=2, allow_nan=False))
        elif options.csv:
            print(report.rows_as_csv(columns, rows), end="")
        else:
            report.show_rows(columns, rows, make_console())
        return VALID
    if options.to is not None:
        files.write(options.to, page_of(path, options.filters, options.price_per_hour))
        print(plain(f"The page is in {options.to}."))
        return VALID
    content = history.history(path, options.filters)
    if options.json:
        print(json.dumps(content, allow_nan=False))
    elif options.csv:
        print(report.as_csv(content), end="")
    else:
        report.show(content, make_console())
    return VALID


def page_of(
    store: Path, filters: Sequence[str], prices: str = "", *, pages: Mapping[str, str] | None = None
) -> str:
    """The page of the history of a store, with the given prices of systems; `pages` are addresses of the pages of
    campaigns, by their folders."""
    from train_bench.report.page import facts, write  # here, because tables need none of it

    priced = facts.read_prices(prices)
    content = history.history(store, filters)
    facts.refuse_unknown(priced, {point["system"] for line in content["lines"] for point in line["points"]})
    return write.history_page(
        content, lambda folders: history.runs(store, folders), filters=filters, prices=priced, pages=pages
    )


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.sql is not None and options.filters:
        raise RequestError("--sql says itself what it asks for; leave the filters out.")
    if options.sql is not None and options.to is not None:
        raise RequestError(
            "--to is the page of the history, and --sql another question; leave one of them out."
        )
    shared_options.refuse_no_file(options.to, "history.html")
    if options.price_per_hour and options.to is None:
        raise RequestError("--price-per-hour needs a page; add --to FILE, or leave it out.")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "train-bench history",
        description="Scores over dates and revisions, of campaigns and rounds that a store has. A line has results of "
        "the same task on the same system with the same launcher, ranks, device and precision; published entries of "
        "the same benchmark and target, submitter, kind of accelerator and number of these. What is not valid, or a "
        "copy, is marked and joined with nothing.",
        words=history.FILTERS,
    )
    names = ", ".join(history.FILTERS)
    parser.add_argument(
        "filters", nargs="*", metavar="NAME=VALUE", help=f"only results of which this holds: {names}"
    )
    shared_options.add_store(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="one row for each result, as comma-separated values")
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    form.add_argument("--to", type=Path, metavar="FILE", help="a page, for example history.html")
    shared_options.add_price(parser, with_option="--to")
    parser.add_argument(
        "--sql", metavar="SELECT", help="a query of your own; the tables are entries and logs"
    )
    return parser.parse_args(arguments)
