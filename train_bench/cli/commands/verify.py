"""Evaluate the weights that a campaign has kept (keep_weights=true) again, and compare with what its logs say."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.campaign import data, kept_weights, lock, rank_job
from train_bench.campaign.kept_weights import Kept
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing, rank_overrides
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core import files
from train_bench.core.digits import significant
from train_bench.core.job import EVALUATED
from train_bench.errors import RequestError
from train_bench.judge.checks.verified import TOLERANCE, path_of
from train_bench.plan.request import Request
from train_bench.report.console import make_console, print_line

WORK = "verify"


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench verify", description=__doc__, words=rank_overrides.OTHER_RANKS)
    rank_overrides.add_arguments(parser, "evaluate there")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="NUMBER",
        help=f"how far a metric may be from the logged one (default {TOLERANCE:g}: sums in another order)",
    )
    composing.answer_options(parser)
    options = parser.parse_intermixed_args(arguments)
    composing.refuse_file(options.to)
    rank_overrides.refuse_others(WORK, options.overrides)
    if not 0 <= options.tolerance < math.inf:
        raise RequestError(f"--tolerance is {options.tolerance:g}; it is a number from 0 on.")
    opened = Campaign.open(options.folder)

    def act(request: Request) -> Answer:
        return _verify(rank_overrides.with_ranks(opened, request, options.overrides, WORK), options.tolerance)

    return composing.with_request(WORK, options, options.overrides, act)


def _verify(campaign: Campaign, tolerance: float) -> Answer:
    rank_job.refuse(campaign, WORK)
    kept = kept_weights.kept_runs(campaign)
    data.refuse_missing(campaign)
    folder, plan = campaign.folder, campaign.plan
    runs = []
    with lock.held(folder / "ranks" / "verify.lock", f"Verifying {folder}"):
        for one in kept:
            run = _compared(campaign, one, tolerance)
            files.write_json(path_of(one.job.result_file), run)
            verdict = "verified" if run["agree"] else f"DIFFERS by more than {tolerance:g}"
            print_line(
                make_console(),
                f"run {one.job.index}: logged {_in_words(run, 'logged')}, found {_in_words(run, 'found')}: {verdict}",
            )
            runs.append({"index": one.job.index, **run})
    code = VALID if all(run["agree"] for run in runs) else INVALID
    return Answer(
        code=code, content={"runs": runs, "ranks": plan.world_size, "launcher": plan.launcher}, show=_show
    )


def _compared(campaign: Campaign, kept: Kept, tolerance: float) -> dict[str, Any]:
    """Logged and found metrics of a run, and whether they agree."""
    found, logged, plan = _evaluated(campaign, kept), kept.logged, campaign.plan
    return {
        "log": kept.record.sha256,
        "weights": [path.name for path in kept.paths],
        "launcher": plan.launcher,
        "ranks": plan.world_size,
        "logged": logged,
        "found": found,
        "tolerance": tolerance,
        "agree": all(
            (now := found.get(name)) is not None and abs(now - value) <= tolerance
            for name, value in logged.items()
        ),
    }


def _show(content: Mapping[str, Any], console: Console) -> None:
    agreeing = sum(run["agree"] for run in content["runs"])
    print_line(
        console,
        f"quality verified: {agreeing} of {len(content['runs'])} runs, on {content['ranks']} rank(s) by "
        f"{content['launcher']}",
    )


def _evaluated(campaign: Campaign, kept: Kept) -> dict[str, float | None]:
    """The metrics that the weights give, in processes of their own; None for what is no number."""
    folder = kept.job.folder / "ranks" / f"verify_{kept.job.index}"
    job = rank_job.carry_out(
        campaign.with_job(kept.job), WORK, {"files": [str(path) for path in kept.paths]}, folder
    )
    seen: dict[str, float | None] = files.read_json(job.folder / EVALUATED)
    shutil.rmtree(folder)
    return seen


def _in_words(run: Mapping[str, Mapping[str, float | None]], side: str) -> str:
    """Metrics of one side, in digits that tell them from those of the other."""
    other = run["found" if side == "logged" else "logged"]
    return ", ".join(f"{name} {_number(value, other.get(name))}" for name, value in run[side].items())


def _number(value: float | None, other: float | None) -> str:
    if value is None:
        return "no number"
    return significant(value, value if other is None else other, digits=6)[0]
