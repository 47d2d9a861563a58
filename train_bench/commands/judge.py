"""What the rules say of a log, a campaign or a tree of results."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.commands import reading
from train_bench.exit_codes import INVALID, VALID
from train_bench.judge import cross_check
from train_bench.report import findings


def main(words: Sequence[str]) -> int:
    """The command: its words to its exit code."""
    parser = reading.parser_of_path("judge", __doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(words)
    judged = reading.judged_tree(options.path, options.ruleset)
    told = judged.as_json()
    if options.official:
        for entry, judgement in zip(told["entries"], judged.entries, strict=True):
            entry["official"] = cross_check.compare(judgement)
    reading.tell(told, options.json, findings.show)
    return VALID if judged.valid else INVALID
