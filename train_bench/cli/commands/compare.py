"""Compare the times of campaigns, with confidence intervals: of two in sentences, of more as a table.

With --fail-if-slower 3 the exit code is 1 if a campaign is slower than the first, or than its history, by more than
3 %, or reaches the target less often than the first, 0 if it is not, and 3 if the runs cannot tell. With
--fail-if-worse 0.005 likewise for the quality at the same amount of training, and with --fail-if-changed if runs of
equal seeds are not equal; all can be asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from train_bench.campaign import comparing
from train_bench.cli import campaign_paths, result_output, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import CANNOT_TELL, VALID, fail, state
from train_bench.compare import campaign_table, gate
from train_bench.compare.question import Question
from train_bench.errors import LogError, WriteError
from train_bench.report import comparison as report
from train_bench.report import gate as gate_report

OTHERWISE = ("limit", "margin", "unchanged")
"""Fields of the question that have another name as options."""


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _parser().parse_args(arguments)
    limit = None if options.fail_if_slower is None else gate.limit_of(options.fail_if_slower)
    asked = {name: getattr(options, name) for name in Question.__slots__ if name not in OTHERWISE}
    question = Question(**asked, limit=limit, margin=options.fail_if_worse, unchanged=options.fail_if_changed)
    question.refuse()
    shared_options.refuse_no_file(options.to, "page.html")
    try:
        return _answer(comparing.compare(question), options)
    except (LogError, WriteError, OSError) as error:
        if not question.gated:
            raise
        fail(LogError(str(error)))
        return CANNOT_TELL  # 1 would say that it is slower


def _answer(compared: comparing.Compared, options: argparse.Namespace) -> int:
    content, gated = compared.content, "gates" in compared.content
    result_output.print_result(content, options.json, gate_report.show_document if gated else report.show)
    if options.to is not None:
        compared.write_page(options.to)
    code: int = content["exit_code"] if gated else VALID
    return state(code, gate_report.deciding(content)) if options.json and gated else code


def _parser() -> argparse.ArgumentParser:
    parser = Parser("train-bench compare", description=__doc__)
    parser.add_argument(
        "paths",
        action=campaign_paths.Expand,
        nargs="+",
        metavar="DIR",
        help=f"A, B, ...: campaigns, or other folders of one entry's logs, patterns of such, {campaign_paths.HELP}",
    )
    parser.add_argument(
        "--baseline",
        choices=campaign_table.BASELINES,
        default=campaign_table.FIRST,
        help="(more than two) the campaign that the others are compared with: the first, as without it, or the fastest",
    )
    parser.add_argument(
        "--sort",
        choices=("time", "date", "name"),
        help="(more than two) order of the table; as given without it",
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="WORD",
        help="(more than two) only rows with this word, of a name, a date, a difference or a verdict; may be repeated",
    )
    shared_options.add_ruleset(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page, with the answers first")
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="the slow-down that is allowed in percent, such as 3 or 3%%",
    )
    parser.add_argument(
        "--fail-if-worse",
        type=float,
        metavar="MARGIN",
        help="the loss of quality that is allowed at the same amount of training, in the metric's unit, such as 0.005",
    )
    parser.add_argument(
        "--fail-if-changed",
        action="store_true",
        help="runs of equal seeds have to count the same and find bit-equal qualities, which move; one pair is enough",
    )
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="look after each pair of runs, as often as one likes, until it is known",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        metavar="N",
        help="(--sequential) how many pairs there will be at most, decided before the first; by default as many as the "
        "round demands runs",
    )
    parser.add_argument(
        "--against-history",
        type=Path,
        action="append",
        nargs="?",
        metavar="HISTORY_DIR",
        help="compare each DIR with the last valid campaigns below this folder, of the same task and system, that "
        "began before it; may be repeated. Without a folder: with those of the store, after the last DIR",
    )
    shared_options.add_store(parser, with_option="--against-history")
    parser.add_argument(
        "--last", type=int, metavar="K", help="(--against-history) how many campaigns, 10 by default"
    )
    return parser
