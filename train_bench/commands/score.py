"""The score of a campaign, the results table of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from train_bench.commands import reading
from train_bench.exit_codes import INVALID, VALID
from train_bench.judge import summary
from train_bench.report import results, table


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = reading.parser_of_path("score", __doc__)
    parser.add_argument("--csv", action="store_true", help="the results table as comma-separated values")
    parser.add_argument("--markdown", action="store_true", help="the results table as Markdown")
    reading.summary_options(parser)
    options = parser.parse_args(arguments)
    judged = reading.judged_tree(options.path, options.ruleset, options.published)
    scores = [entry.score for entry in judged.entries]
    reference = reading.reference_minutes(options)
    content: dict[str, Any] = {
        "entries": [
            one.score.as_json() | one.origin | {"peers": one.peers_as_json()} for one in judged.entries
        ],
        "unjudged": judged.unjudged,
        "skipped": judged.skipped,
    }
    for entry, one in zip(content["entries"], scores, strict=True):
        entry["normalised"] = summary.normalised(one, reference or {})
    content["summary"] = None
    if options.summary is not None:
        weights = summary.read_weights(options.summary)
        content["summary"] = asdict(summary.custom_summary(scores, weights, reference))
    if options.csv or options.markdown:
        print(results.as_csv(content) if options.csv else results.as_markdown(content), end="")
    elif judged.is_one_entry and not options.json and options.summary is None:
        reading.tell(content["entries"][0], False, table.show_score)
    else:
        reading.tell(content, options.json, results.show)
    return VALID if judged.valid else INVALID
