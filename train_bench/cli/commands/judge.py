"""Check a log, a campaign or a tree of results for compliance."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.cli import judge_options
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.judge.official import cross_check
from train_bench.report import findings


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = judge_options.parser_of_path("judge", __doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(arguments)
    judged = judge_options.judged_tree(options.path, options.ruleset, options.published)
    content = judged.as_json()
    if options.official:
        for entry, judgement in zip(content["entries"], judged.entries, strict=True):
            entry["official"] = cross_check.compare(judgement)
    judge_options.print_result(content, options.json, findings.show)
    return VALID if judged.valid else INVALID
