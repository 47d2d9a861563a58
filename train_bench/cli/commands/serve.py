"""Serve the weights that a campaign has kept (keep_weights=true) under LoadGen's scenarios, and judge the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench.campaign.opened import Campaign
from train_bench.cli import composing, rank_overrides
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.judge.loadgen_folders import PAGE
from train_bench.plan.request import Request
from train_bench.report import serving as report
from train_bench.serving.assignment import QUANTISATIONS, SCENARIOS, WORK

ALL = "all"

LARGEST_WINDOW_MS = 1000.0
LARGEST_BATCH = 4096


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench serve", description=__doc__, words=rank_overrides.OTHER_RANKS)
    rank_overrides.add_arguments(parser, "serve there")
    parser.add_argument(
        "--scenario",
        default=ALL,
        metavar="NAME",
        help=f"{', '.join(SCENARIOS)}, several with commas between them, or {ALL} (default: all of the benchmark)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder of the result (default: CAMPAIGN_serving)"
    )
    parser.add_argument(
        "--quantisation",
        default="none",
        choices=QUANTISATIONS,
        help="of the weights, which have to keep 0.99 of the quality (default none)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="N",
        help="most samples that are answered together (default 32)",
    )
    parser.add_argument(
        "--window",
        type=float,
        default=0.0,
        metavar="MS",
        help="how long a batch waits for more samples, in milliseconds (default 0: it has what is waiting)",
    )
    composing.answer_options(parser)
    options = parser.parse_intermixed_args(arguments)
    composing.refuse_file(options.to)
    rank_overrides.refuse_others(WORK, options.overrides)
    if not 1 <= options.batch_size <= LARGEST_BATCH:
        raise RequestError(f"--batch-size is {options.batch_size}; allowed are 1 to {LARGEST_BATCH}.")
    if not 0 <= options.window <= LARGEST_WINDOW_MS:
        raise RequestError(f"--window is {options.window:g}; allowed are 0 to {LARGEST_WINDOW_MS:g} ms.")
    names = None if options.scenario == ALL else tuple(options.scenario.split(","))
    for name in names or ():
        if name not in SCENARIOS or (names or ()).count(name) > 1:
            raise RequestError(
                f"--scenario is {options.scenario}; give {ALL}, or some of {', '.join(SCENARIOS)}, each once."
            )
    opened = Campaign.open(options.folder)
    output = options.output or options.folder.resolve().with_name(f"{options.folder.resolve().name}_serving")

    def act(request: Request) -> Answer:
        from train_bench.report.page import write
        from train_bench.serving import judge, session  # take numpy and scipy
        from train_bench.serving.batching import Batching

        campaign = rank_overrides.with_ranks(opened, request, options.overrides, WORK)
        wanted = session.ServeRequest(
            scenarios=names or session.offered(campaign.plan.benchmark),
            batching=Batching(window_ms=options.window, max_batch_size=options.batch_size),
            quantisation=options.quantisation,
            output=output,
        )
        session.carry_out(
            campaign, session.refuse(campaign, wanted), wanted, tell=lambda line: print(line, flush=True)
        )
        judged = judge.judge_folder(output, None)
        content = {"folder": str(output), **judged.as_json()}
        files.write(output / PAGE, write.serving_page(content))
        return Answer(code=VALID if judged.valid else INVALID, content=content, show=report.show_summary)

    return composing.with_request(WORK, options, options.overrides, act)
