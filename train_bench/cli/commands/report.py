"""One page about a log, a campaign, a tree of results or several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from train_bench.campaign import status
from train_bench.campaign.machine_history import machine_history
from train_bench.cli import campaign_paths, judge_options, shared_options
from train_bench.cli.arguments import Parser
from train_bench.judge import summary
from train_bench.judge.tree import Judged
from train_bench.plan import discover
from train_bench.report.page import write
from train_bench.report.page.facts import PageOptions, read_prices, refuse_unknown


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench report", description=__doc__)
    campaign_paths.add_argument(parser)
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help="the page, for example report.html"
    )
    shared_options.add_ruleset(parser)
    shared_options.add_price(parser)
    judge_options.summary_options(parser)
    options = parser.parse_args(arguments)
    shared_options.refuse_no_file(options.to, "report.html")
    prices = read_prices(options.price_per_hour)
    judged = [(path, judge_options.judged_tree((path,), options.ruleset)) for path in options.paths]
    refuse_unknown(prices, {entry.score.system for _, tree in judged for entry in tree.entries})
    summaries = []
    if options.summary is not None:
        weights, reference = summary.read_weights(options.summary), judge_options.reference_minutes(options)
        for path, tree in judged:
            scores = [entry.score for entry in tree.entries]
            summarised = asdict(summary.custom_summary(scores, weights, reference))
            summaries.append({"path": str(path), **summarised})
    expected = status.expected_ends(entry for _, tree in judged for entry in tree.entries)
    page_options = PageOptions(
        prices=prices, summaries=summaries, expected=expected, history=machine_history(discover.store(None))
    )
    write.write(judged, options.to, options=page_options, rcp_folders=discover.rcp_folders())
    print(f"The report is in {options.to}.")
    together = Judged(
        entries=tuple(entry for _, tree in judged for entry in tree.entries),
        unjudged=tuple(reason for _, tree in judged for reason in tree.unjudged),
    )
    return judge_options.exit_code(together, stated=False)
