"""Options of `plan --dry`, and the printed object of a request."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from train_bench.campaign import refusals, shared_memory
from train_bench.cli import composing
from train_bench.cli.hydra_app import SWEEPING
from train_bench.core import instruments
from train_bench.errors import RequestError
from train_bench.judge import rcp
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.progress import Unit
from train_bench.rules import ruleset
from train_bench.task import BenchmarkConfig

if TYPE_CHECKING:
    from train_bench.dry_run.bound import Bound
    from train_bench.dry_run.step import Step

NUMBERS = ("ranks", "real_share", "memory_gb", "peak_tflops", "memory_gb_s", "network_gb_s")

MACHINE = NUMBERS[2:]


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the options and the overrides. Raises `RequestError` for invalid numbers, and for options without the
    one that they belong to."""
    options, overrides = composing.parse(_parser(), arguments)
    given = {name: getattr(options, name) for name in NUMBERS if getattr(options, name) is not None}
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if not options.dry and name != "memory_gb":
            raise RequestError(f"{flag} belongs to --dry; give both, or leave it out.")
        if not 0 < value < float("inf") or (name == "real_share" and value > 1):
            raise RequestError(
                f"{flag} is {value:g}; it is {'at most 1' if name == 'real_share' else 'finite'} and above 0."
            )
    if options.memory_gb is not None:
        overrides = [*overrides, f"memory_gb={options.memory_gb}"]
    if options.dry and not SWEEPING.isdisjoint(overrides):
        raise RequestError("--dry takes one configuration at a time; leave --multirun out.")
    return options, overrides


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("plan")
    parser.add_argument(
        "--dry",
        action="store_true",
        help="instead, what a training step at full size computes, holds and exchanges, found without its memory (no "
        "data, no weights, no GPU): parameters, FLOP of a sample by part of the model, memory of a rank by kind and at "
        "its peak, bytes between ranks; with the following, whether a rank fits its device and how long a step and "
        "training take at least. device=cuda: attention as GPUs compute it",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="ranks that share the global batch; default: those of the launcher",
    )
    for name, about in (
        (
            "memory-gb",
            "memory of a rank's device, as memory_gb=X; without --dry, what cannot fit it is refused",
        ),
        ("peak-tflops", "10^12 FLOP a second that the device does at most, in the job's precision"),
        ("memory-gb-s", "GB a second between the device and its memory"),
        ("network-gb-s", "GB a second that a rank sends to others"),
        (
            "real-share",
            "share of a padded sample that is not padding, mean length over longest (bert, rnnt) or mean pixels over "
            "most (maskrcnn): FLOP without padding are reported, too, and are what the bound counts",
        ),
    ):
        parser.add_argument(f"--{name}", type=float, metavar="X", help=about)
    return parser


def dry_plan(request: Request, options: argparse.Namespace) -> dict[str, Any]:
    """Object that `plan --dry --json` prints of a configuration."""
    config = request.config
    if config.command is not None:
        raise RequestError("--dry takes a step of the reference, not of a command; leave command= out.")
    reference = config.benchmark.reference
    shipped = discover.source_of(reference) is None
    for sentence in refusals.missing_packages(reference, type(config.benchmark).REQUIRES, shipped=shipped):
        raise RequestError(sentence)
    from train_bench.dry_run.bound import Machine, bound_of  # here, because they import torch
    from train_bench.dry_run.step import step_of

    launcher = config.launcher
    if options.ranks is not None and (launcher.together != 1 or launcher.divides):
        launcher = replace(launcher, nodes=1, nproc_per_node=options.ranks)
    reason = discover.refuse_reference(reference)
    reason = reason or launcher.refuse_division(config.benchmark)
    if reason is not None:
        raise RequestError(reason)
    ranks = options.ranks or launcher.world_size
    if ranks < 1:
        raise RequestError(
            f"launcher.nodes={launcher.nodes} x launcher.nproc_per_node={launcher.nproc_per_node} are {ranks} ranks; "
            f"both have to be at least 1."
        )
    step = step_of(
        discover.task(config.benchmark.reference),
        config.benchmark,
        ranks=ranks,
        device=config.device,
        precision=config.precision,
        together=launcher.together,
        divided=launcher.divides,
        sharing=launcher.sharing if launcher.divides else None,
        reduces_cast=launcher.reduces_cast,
        real_share=options.real_share,
    )
    need = shared_memory.needed(config, launcher, ranks)
    machine = {name: getattr(options, name) for name in MACHINE} | {"memory_gb": config.memory_gb}
    bound = bound_of(step, Machine(**machine))
    return {
        "variant": request.variant,
        "benchmark": config.benchmark.benchmark,
        **asdict(step),
        "flop_per_sample": step.flop_per_sample,
        "machine": machine,
        "bound": asdict(bound),
        "try": _smaller(config.benchmark, step) if bound.fits is False else None,
        "training": _training(request, step, bound),
        "shared_memory": None if need is None else need.as_json(),
    }


def _smaller(benchmark: BenchmarkConfig, step: Step) -> str | None:
    """Override that leaves fewer activations; None where there is none."""
    if getattr(benchmark, "activation_checkpointing", True) is False:
        return "benchmark.activation_checkpointing=true"
    if step.samples > 1:
        factor = next(number for number in range(2, step.samples + 1) if step.samples % number == 0)
        return f"benchmark.hyperparameters.gradient_accumulation_steps={factor * step.micro_batches}"
    return None


def _training(request: Request, step: Step, bound: Bound) -> dict[str, Any]:
    """Number of samples in training to the target, if it is known, and the minimum minutes."""
    config = request.config.benchmark.for_ranks(step.ranks)
    rules = ruleset.load(config.ruleset).benchmark(config.benchmark)
    try:
        if (lack := instruments.missing("forecast")) is not None:
            raise RequestError(lack)
        from train_bench.forecast import samples

        expected = samples.expect(rcp.load(rules, discover.rcp_folders()), rules, step.global_batch_size)
    except RequestError as error:
        count, message = config.samples_per_epoch, str(error)
        message += "" if count is None else " One epoch is counted."
    else:
        done = expected.mean() - expected.schedule.start
        per_unit = {Unit.EPOCH: config.samples_per_epoch, Unit.SAMPLE: 1}.get(rules.unit)
        count = None if per_unit is None else round(done * per_unit)
        message = expected.message
    minutes = None
    if count is not None and bound.step_seconds is not None:
        minutes = count / step.global_batch_size * bound.step_seconds / 60
    return {"samples": count, "message": message, "minutes": minutes}
