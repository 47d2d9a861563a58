"""Explain the words that tables and pages of results print: all of them, or those that every WORD is a part of."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.cli import result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.report import glossary


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench glossary", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="olympic mean, factor, undecided, ...")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    result_output.print_result({"words": glossary.matching(options.words)}, options.json, glossary.show)
    return VALID
