"""The score of a campaign, the results table of a tree."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean

from train_bench.campaign import status
from train_bench.cli import judge_options, result_output, shared_options
from train_bench.compare.independence import only_seed, without_copies, without_repeated_seeds
from train_bench.judge import statistics, summary
from train_bench.judge.score import Score
from train_bench.report import results_table, score_table
from train_bench.report.console import make_console, print_line
from train_bench.report.page.facts import read_prices, refuse_unknown


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = judge_options.parser_of_paths("score", __doc__)
    parser.add_argument("--csv", action="store_true", help="the results table as comma-separated values")
    parser.add_argument("--markdown", action="store_true", help="the results table as Markdown")
    parser.add_argument(
        "--half-width",
        type=_percent,
        metavar="PERCENT",
        help="say how many seeds narrow the 95 %% confidence interval of the mean to +-PERCENT of it",
    )
    shared_options.add_price(parser)
    judge_options.summary_options(parser)
    options = parser.parse_args(arguments)
    prices = read_prices(options.price_per_hour)
    judged = judge_options.judged_tree(options.paths, options.ruleset, options.published)
    scores = [entry.score for entry in judged.entries]
    refuse_unknown(prices, {one.system for one in scores})
    reference = judge_options.reference_minutes(options)
    content = status.scores_as_json(judged, prices=prices, reference=reference)
    if options.half_width is not None:
        for entry, one in zip(content["entries"], scores, strict=True):
            entry["runs_for_half_width"] = _runs_needed(one, options.half_width)
    if options.summary is not None:
        weights = summary.read_weights(options.summary)
        content["summary"] = asdict(summary.custom_summary(scores, weights, reference))
    if options.csv or options.markdown:
        print(results_table.as_csv(content) if options.csv else results_table.as_markdown(content), end="")
    elif judged.is_one_entry and not options.json and options.summary is None:
        result_output.print_result(content["entries"][0], False, score_table.show_score)
        console = make_console()
        if options.half_width is not None:
            print_line(console, score_table.runs_needed(content["entries"][0], options.half_width))
        sentence = status.expected_end(judged.entries[0])
        if sentence is not None:
            print_line(console, sentence)
    else:
        result_output.print_result(content, options.json, results_table.show)
    stated = not (options.json or options.csv or options.markdown)
    return judge_options.exit_code(judged, stated=stated)


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent < 100:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid half width; give a percentage above 0 and below 100, for example 2"
        )
    return percent


def _runs_needed(score: Score, percent: float) -> int | None:
    """Number of runs that the interval of their mean takes to be give or take so much of it; None where that is
    unknown, or nobody would do them."""
    runs = [run for run in without_copies(score.runs) if run.converged and run.minutes is not None]
    minutes = [run.minutes for run in without_repeated_seeds(runs) if run.minutes is not None]
    if len(minutes) < 2 or only_seed(runs) is not None:
        return None
    return statistics.runs_for_half_width(minutes, percent / 100 * fmean(minutes))
