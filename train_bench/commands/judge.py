"""What the rules say of a log, a campaign or a tree of results."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.commands import reading
from train_bench.exit_codes import INVALID, VALID
from train_bench.judge import cross_check
from train_bench.report import findings


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = reading.parser_of_path("judge", __doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(arguments)
    judged = reading.judged_tree(options.path, options.ruleset, options.published)
    content = judged.as_json()
    if options.official:
        for entry, judgement in zip(content["entries"], judged.entries, strict=True):
            entry["official"] = cross_check.compare(judgement)
    reading.tell(content, options.json, findings.show)
    return VALID if judged.valid else INVALID
