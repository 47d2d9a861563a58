"""Profile a training step, from the timed window to the operator, with advice. With paths instead
of options: where it went in results that are there (logs of any round), what got slower between two profiles, or what
three and more have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from train_bench.campaign import data, rank_job, refusals
from train_bench.campaign.opened import Campaign
from train_bench.cli import campaign_paths, composing, overrides
from train_bench.cli.composing import Answer
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.forecast import samples
from train_bench.judge import rcp
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.profile import difference, logs, several
from train_bench.progress import Unit
from train_bench.report import profile as report
from train_bench.report.console import print_line
from train_bench.report.page import write
from train_bench.rules import ruleset

WORK = "profile"


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, others = composing.parse(_parser(), arguments)
    words = [*options.paths, *others]
    typed = [word for word in words if "=" not in word and not word.startswith("-")]
    paths = [path for word in typed for path in campaign_paths.expand(word)]
    _refuse(options, len(paths))
    if paths:
        if len(typed) < len(words):
            raise RequestError("Give either paths of what is there or overrides of what is to be profiled.")
        for path in paths:
            overrides.refuse_name(path)
        return composing.give(_of_paths(paths, options), options)
    return composing.with_request(WORK, options, words, lambda request: _of_request(request, options))


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("profile", page=True)
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="results of any round, or a profile; two profiles are compared, more are shown side by side",
    )
    parser.add_argument(
        "--steps", type=int, default=20, metavar="NUMBER", help="of a round, at most up to an evaluation; 20"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="NUMBER", help="in which each level is measured once; 5"
    )
    parser.add_argument(
        "--peak-tflops",
        type=float,
        metavar="NUMBER",
        help="10^12 FLOP a second of a rank, instead of what is measured",
    )
    parser.add_argument(
        "--bound",
        action="store_true",
        help="also how long a step takes at least here: each unique operator measured alone, at its best",
    )
    parser.add_argument(
        "--bricks",
        action="store_true",
        help="only predict a step, by its unique operators measured alone; needs no data, and no room for the network",
    )
    parser.add_argument("--ruleset", metavar="ROUND", help="round of results that do not say it")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="write that object to FILE.json, or a page of three profiles or more",
    )
    return parser


def _refuse(options: argparse.Namespace, paths: int) -> None:
    for name, least in (("steps", 1), ("rounds", 2)):
        value = getattr(options, name)
        if value < least:
            raise RequestError(f"--{name} is {value}; it is at least {least}.")
    if options.bound and options.bricks:
        raise RequestError("--bricks trains nothing that --bound could be compared with; choose one of them.")
    if paths and (options.bound or options.bricks):
        raise RequestError(
            "--bound and --bricks measure here, and paths are of what was measured; give overrides instead of paths."
        )
    if options.peak_tflops is not None and not 0 < options.peak_tflops < float("inf"):
        raise RequestError(f"--peak-tflops is {options.peak_tflops:g}; it is finite and above 0.")
    if options.to is not None and options.to.suffix not in (".json", *([".html"] if paths > 2 else ())):
        raise RequestError(
            f"--to is '{options.to}'; give a name that ends in .json, or with three profiles or more a page, for "
            f"example profiles.html."
        )


def _of_paths(paths: Sequence[Path], options: argparse.Namespace) -> Answer:
    """Read the profiles that are there; nothing is run."""
    profiles = [path / "profile.json" if path.is_dir() else path for path in paths]
    if len(paths) > 2:
        content = several.side_by_side([difference.read(path) for path in profiles])
        if options.to is not None and options.to.suffix == ".html":
            files.write(options.to, write.profiles_page(content))
        return Answer(content=content, show=report.show_several)
    if len(paths) == 2:
        before, after = (difference.read(path) for path in profiles)
        return Answer(content=difference.between(before, after), show=report.show_difference)
    if profiles[0].is_file() and profiles[0].suffix == ".json":
        content = difference.read_any(profiles[0])
        shown = report.show_prediction if content["of"] == "bricks" else report.show
        return Answer(content=content, show=shown)
    return Answer(content=logs.profile(paths[0], options.ruleset), show=report.show_logs)


def _of_request(request: Request, options: argparse.Namespace) -> Answer:
    """Train the steps in ranks of their own, in a folder of their own."""
    if request.config.output is None:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        request.config.output = f"results/{now}_profile_{request.variant}"
    campaign = Campaign.planned(request, to_be_run=False)
    rank_job.refuse(campaign, WORK)
    if (options.bound or options.bricks) and campaign.first.launcher_config.get("shard") is not None:
        raise RequestError(
            "--bound and --bricks know steps whose weights are whole on every rank; leave launcher.shard out."
        )
    cannot = request.config.launcher.cannot_continue
    if cannot is not None:
        raise RequestError(f"{cannot}, and every round of a profile begins with one; leave it out.")
    if campaign.first.launcher_config.get("tensor_parallel", 1) > 1:
        raise RequestError(
            "A profile counts the operators of whole matrices; leave launcher.tensor_parallel out."
        )
    folder = campaign.folder
    refusals.refuse(campaign, [refusals.folder])
    if not options.bricks:
        data.prepare(campaign)
    work: dict[str, Any] = {
        "steps": options.steps,
        "rounds": options.rounds,
        "peak_tflops": options.peak_tflops,
        "bound": options.bound,
        "bricks": str(discover.cache() / "bricks") if options.bricks else None,
    }
    rank_job.carry_out(campaign, WORK, work, folder)
    content = files.read_json(folder / "profile.json")
    if options.bricks:
        return Answer(content=content, show=report.show_prediction)
    if content["bound"]:
        _tell_minutes(content["bound"]["as_if"], request)
        files.write_json(folder / "profile.json", content)
    files.write(folder / "profile.html", write.profile_page(content))

    def shown(profile: dict[str, Any], console: Console) -> None:
        report.show(profile, console)
        print_line(console, f"profile: {folder / 'profile.json'}, page: {folder / 'profile.html'}")

    return Answer(content=content, show=shown)


def _tell_minutes(rows: Sequence[dict[str, Any]], request: Request) -> None:
    """Print the effect of a step less on the score, where reference convergence points say how many steps there are:
    the mean of single runs, and between which 80 % of them lie."""
    config = request.config.benchmark
    rules = ruleset.load(config.ruleset).benchmark(config.benchmark)
    batch = config.hyperparameters.global_batch_size
    per_unit = {Unit.EPOCH: config.samples_per_epoch, Unit.SAMPLE: 1}.get(rules.unit)
    try:
        expected = samples.expect(rcp.load(rules, discover.rcp_folders()), rules, batch)
    except RequestError:
        return
    if per_unit is None:
        return
    done = (expected.values - expected.schedule.start) * per_unit / batch / 60
    steps = {"mean": done.mean(), "low": np.quantile(done, 0.1), "high": np.quantile(done, 0.9)}
    for row in rows:
        row["saved_minutes"] = {name: -row["saved_seconds"] * float(count) for name, count in steps.items()}
