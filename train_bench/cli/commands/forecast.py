"""Forecast the time to train: minutes of the score with confidence intervals, from a probe, logs, published entries
or a stated throughput. Without any of these a probe is run here, as the options of `run` say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench.campaign import probe
from train_bench.cli import campaign_paths, composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import say, warn
from train_bench.forecast.case import Case, case_of_logs, case_of_published, document
from train_bench.forecast.settings import Settings
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.report import forecast as report


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(_parser(), arguments)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__slots__})
    settings.refuse()

    def answer(case: Case) -> Answer:
        return Answer(content=document(case, settings), show=report.show)

    if settings.logs is not None:
        of_logs = case_of_logs(settings.logs, settings, overrides, discover.rcp_folders())
        return composing.give(answer(of_logs), options)
    if settings.published is not None:
        return composing.give(answer(case_of_published(settings.published, settings, overrides)), options)
    return composing.with_request(
        "forecast", options, overrides, lambda request: answer(_case(request, settings))
    )


def _case(request: Request, settings: Settings) -> Case:
    if settings.throughput is not None:
        return probe.case_of_throughput(request, settings.throughput, settings.evaluation_seconds)
    return probe.case_of_probe(request, settings.probe_blocks, say, warn)


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("forecast")
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument(
        "--from",
        dest="logs",
        type=campaign_paths.one,
        metavar="PATH",
        help=f"a log or a campaign, finished or not, of any round, {campaign_paths.HELP}",
    )
    sources.add_argument(
        "--published",
        metavar="SUBMITTER",
        help="published entries of this submitter; needs benchmark=, --accelerator, --accelerators and --batch-size",
    )
    sources.add_argument(
        "--throughput",
        type=float,
        metavar="NUMBER",
        help="training samples per second, of all ranks together",
    )
    parser.add_argument(
        "--evaluation-seconds", type=float, metavar="NUMBER", help="of one evaluation, with --throughput"
    )
    parser.add_argument(
        "--probe-blocks",
        type=int,
        metavar="NUMBER",
        help="how many blocks a probe runs, each up to an evaluation; without, a fifth of those expected",
    )
    parser.add_argument("--accelerator", metavar="NAME", help="as the submitter writes it")
    parser.add_argument("--accelerators", type=int, metavar="NUMBER", help="of the system")
    parser.add_argument("--batch-size", type=int, metavar="NUMBER", help="global, of the runs")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="published entries instead of those that came along"
    )
    parser.add_argument(
        "--ruleset", metavar="ROUND", help="round of logs that do not say it, or of published entries"
    )
    parser.add_argument(
        "--runs", type=int, metavar="NUMBER", help="of a campaign; without, as many as the rules ask"
    )
    parser.add_argument("--price", type=float, metavar="NUMBER", help="of a rank or accelerator for an hour")
    parser.add_argument(
        "--advise",
        metavar="RANKS",
        help="a table of batch sizes on these numbers of ranks, for example 1,2,4",
    )
    return parser
