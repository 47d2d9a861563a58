"""Time starts with trained weights: from the start of a process to its first right answer, at five levels of what is
there already. Nothing is trained; no result of a campaign is touched."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from train_bench.campaign import command_trust, data, kept_weights, refusals
from train_bench.campaign.kept_weights import Kept
from train_bench.campaign.opened import Campaign
from train_bench.cli import campaign_paths, composing
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID, say
from train_bench.core import files
from train_bench.errors import LaunchError, RequestError, UnknownName
from train_bench.judge.checks.verified import Verification, verification_of
from train_bench.plan import discover
from train_bench.plan.plan import Plan, as_json
from train_bench.report import startup as report
from train_bench.startup import ladder, page_cache, synthetic
from train_bench.startup.ladder import Subject
from train_bench.startup.scratch import scratch_folder
from train_bench.startup.started import start
from train_bench.startup.weight_store import Tier

SHARED_MEMORY = Path("/dev/shm")
MOST_ROUNDS = 1000


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    composing.refuse_file(options.to)
    if not 1 <= options.rounds <= MOST_ROUNDS:
        raise RequestError(f"--rounds is {options.rounds}; it is a number from 1 to {MOST_ROUNDS}.")
    if (options.folder is None) == (options.synthetic is None):
        raise RequestError(
            "startup takes a campaign with kept weights, or --synthetic SIZE,... (for example 10MB,1GB); give one of "
            "them."
        )
    levels = _levels(options.levels)
    return composing.answer(lambda: _measured(options, levels), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("train-bench startup", description=__doc__)
    campaign_paths.add_campaign(parser, optional=True, what=" with verified weights")
    parser.add_argument("--run", type=int, default=0, help="its run (default 0)")
    parser.add_argument(
        "--synthetic",
        metavar="SIZE,...",
        help="linear layers of these sizes instead, for example 10MB,100MB,1GB",
    )
    parser.add_argument("--rounds", type=int, default=5, help="starts of each level, in turn (default 5)")
    parser.add_argument(
        "--levels",
        default=",".join(ladder.LEVELS),
        metavar="LEVEL,...",
        help="; ".join(f"{name}: there is {there}" for name, there in ladder.RETAINED.items()),
    )
    parser.add_argument(
        "--disk",
        type=Path,
        metavar="DIR",
        help="folder on the disk that holds the weights; default: the user's cache folder",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        default=SHARED_MEMORY,
        metavar="DIR",
        help=f"folder in shared memory (default {SHARED_MEMORY})",
    )
    composing.answer_options(parser)
    return parser.parse_args(arguments)


def _levels(text: str) -> tuple[str, ...]:
    named = text.split(",")
    for name in named:
        if name not in ladder.LEVELS:
            raise UnknownName(what="level", name=name, known=ladder.LEVELS)
    return tuple(level for level in ladder.LEVELS if level in named)


def _measured(options: argparse.Namespace, levels: Sequence[str]) -> Answer:
    disk = discover.cache() / "startup" if options.disk is None else options.disk
    sizes = () if options.synthetic is None else options.synthetic.split(",")
    layers = {size: synthetic.layers_of(size) for size in sizes}
    files.refuse_unwritable(disk, "--disk")
    _refuse_memory_tier(options.memory)
    if layers:
        synthetic.refuse_without_torch()
        synthetic.refuse_lack_of_room(max(layers.values()), disk, options.memory)
    else:
        planned, kept = _verified_run(options.folder, options.run)
    models = []
    with scratch_folder(disk) as on_disk, scratch_folder(options.memory) as in_memory:
        if "L0" in levels:
            page_cache.refuse_memory(on_disk)
        tiers = {"disk": Tier(on_disk / "store"), "memory": Tier(in_memory / "store")}
        makers: list[Callable[[], Subject]] = [
            partial(synthetic.make, count, on_disk, name=f"synthetic model of {size}")
            for size, count in layers.items()
        ]
        for make in makers or [lambda: _of_campaign(planned, kept, on_disk)]:
            subject = make()
            done = partial(_say_round, subject, options.rounds)
            models.append(ladder.measure(subject, levels, options.rounds, **tiers, done=done))
            _discard(subject, on_disk, *tiers.values())
    right = all(level["right"] == options.rounds for model in models for level in model["levels"])
    content = {
        "rounds": options.rounds,
        "disk": {"folder": str(disk), "file_system": page_cache.file_system(disk)},
        "memory": {"folder": str(options.memory), "file_system": page_cache.file_system(options.memory)},
        "models": models,
        "weights_matter": ladder.weights_matter(models),
    }
    return Answer(code=VALID if right else INVALID, content=content, show=report.show)


def _refuse_memory_tier(folder: Path) -> None:
    if not folder.is_dir():
        raise RequestError(f"--memory is {folder}, which is no folder; give one in shared memory (/dev/shm).")
    files.refuse_unwritable(folder, "--memory")
    kind = page_cache.file_system(folder)
    if kind is not None and kind not in page_cache.IN_MEMORY:
        raise RequestError(
            f"--memory is {folder}, which lies on {kind}; weights are mapped from shared memory: give a folder on "
            f"tmpfs, as /dev/shm is."
        )


def _discard(subject: Subject, folder: Path, *tiers: Tier) -> None:
    """Remove what was measured, to make room for the next model; the files of a campaign stay."""
    for path, digest in subject.weights:
        for tier in tiers:
            tier.evict(digest)
        if path.is_relative_to(folder):
            path.unlink()


def _say_round(subject: Subject, rounds: int, number: int) -> None:
    say(f"{subject.name}: round {number} of {rounds}")


def _verified_run(folder: Path, index: int) -> tuple[Plan, Kept]:
    """The plan of a campaign, and a run of it whose weights are verified."""
    campaign = Campaign.open(folder)
    if campaign.program is not None:
        raise RequestError(
            f"{folder} was trained by a program of its own; startup needs a reference, whose model it can build."
        )
    command_trust.refuse_processes(campaign.first, "startup")
    refusals.refuse(campaign, [refusals.packages])
    kept = kept_weights.kept_run(campaign, index)
    _verification(campaign.plan, kept)
    data.refuse_missing(campaign)
    return campaign.plan, kept


def _of_campaign(planned: Plan, kept: Kept, scratch: Path) -> Subject:
    """A run of a campaign. The right answer is that of a process which reads its files as `verify` does and finds the
    verified quality in them."""
    described = _description(planned, kept, scratch)
    request = {"load": "copy", "paths": [str(path) for path in kept.paths], "quality": True}
    with start({**described, "request": {"load": None}}, scratch) as process:
        before, reply = process.first, process.ask(request)
    subject = Subject(
        name=f"{planned.variant}, run {kept.job.index} of {kept.job.folder}",
        described=described,
        weights=[(path, kept.digests[path.name]) for path in kept.paths],
        answer=reply["answer"],
    )
    subject.refuse_same_answer(before)
    _refuse_other_quality(kept, _verification(planned, kept), reply["quality"])
    return subject


def _description(planned: Plan, kept: Kept, scratch: Path) -> dict[str, Any]:
    plan = scratch / "plan.json"
    files.write_json(plan, as_json(replace(planned, jobs=(replace(kept.job, python=None),))))
    return {"plan": str(plan), "index": kept.job.index}


def _verification(planned: Plan, kept: Kept) -> Verification:
    result = verification_of(kept.record, planned.jobs[0].target)
    folder = kept.job.folder
    if result is None:
        raise RequestError(
            f"The weights of {kept.job.result_file} were not verified; run train-bench verify {folder} first."
        )
    if not result.agree:
        raise RequestError(
            f"The weights of {kept.job.result_file} do not have the quality that it logs, as train-bench verify "
            f"{folder} found; give a campaign whose weights do."
        )
    return result


def _refuse_other_quality(kept: Kept, verification: Verification, found: Mapping[str, float | None]) -> None:
    for name, value in kept.logged.items():
        here = found.get(name)
        if here is None or abs(here - value) > verification.bound:
            raise LaunchError(
                f"One process on this CPU in fp32 finds {name} {here} in the weights of {kept.job.result_file}, which "
                f"logs {value}; starts are measured where both are equal within {verification.bound:g}. Verify "
                f"with train-bench verify {kept.job.folder} --tolerance NUMBER, or measure another campaign."
            )
