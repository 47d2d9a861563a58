"""Options that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path

from train_bench.cli.replaced_file import refuse_foreign
from train_bench.errors import RequestError


def add_ruleset(parser: argparse.ArgumentParser) -> None:
    """Add `--ruleset`, of results in folders that do not say it."""
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")


def add_store(parser: argparse.ArgumentParser, *, with_option: str = "") -> None:
    """Add `--store`; `with_option` names the option that it belongs to."""
    parser.add_argument(
        "--store",
        metavar="FILE",
        help=f"{_beside(with_option)}the store; that in the user's data folder without it",
    )


def add_price(parser: argparse.ArgumentParser, *, with_option: str = "") -> None:
    """Add `--price-per-hour`, which `report.prices` reads; `with_option` names the option that it belongs to."""
    parser.add_argument(
        "--price-per-hour",
        default="",
        metavar="PRICE",
        help=f"{_beside(with_option)}of a whole system, or SYSTEM=PRICE,... for each: the cost of training to the "
        "target",
    )


def refuse_no_file(path: Path | None, example: str) -> None:
    """Raise `RequestError` for a `--to` that is the name of no file, or of one that is no earlier answer."""
    if path is None:
        return
    if path.name == "" or path.is_dir():
        raise RequestError(f"--to is '{path}'; give the name of a file, for example {example}.")
    refuse_foreign(path)


def _beside(option: str) -> str:
    return f"({option}) " if option else ""
