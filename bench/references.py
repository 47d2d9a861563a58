"""Samples per second of a reference's training step at full model size, against the plainest loop in torch.

Both sides train the same model with the same optimizer, numerics, threads and input, which is synthetic and
lies ready; the plain side is written here as a tutorial would write it: default memory layout, no harness, no
schedule. They alternate step by step in one process. Each line is a comparison; its last figure is our samples
per second over the other's, and the last line is the smallest of them.

    python bench/references.py NAME [STEPS] [BATCH]
"""

from __future__ import annotations

import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from planned import asked_for
from torch.nn import functional

from launchers.inline import parallel as inline
from train_bench.job import Device, Job, Precision

Step = Callable[[], object]
SEED = 1


class Rival(NamedTuple):
    """What our step is compared with: a name, and a function of configuration and batch that gives its step."""

    name: str
    step: Callable[[Any, Any], Step]


class Case(NamedTuple):
    """How a reference is timed: samples per step (a CPU has little memory) and its rivals."""

    batch: int
    rivals: tuple[Rival, ...]


def main() -> None:
    """Measure and print."""
    name = sys.argv[1] if len(sys.argv) > 1 else "resnet"
    if name not in CASES:
        sys.exit(f"{name} is not timed here; choose one of {', '.join(CASES)}.")
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    batch = int(sys.argv[3]) if len(sys.argv) > 3 else CASES[name].batch
    config = _config(name, batch)
    samples = importlib.import_module(f"references.{name}.data").synthetic(config, batch)
    ratios = []
    for rival in CASES[name].rivals:
        ours, theirs = _alternate(_ours(name, config, samples), rival.step(config, samples), steps)
        ratios.append(theirs / ours)
        print(f"{name}: {batch / ours:8.2f} samples/s, {rival.name} {batch / theirs:8.2f}", end="")
        print(f", ratio {ratios[-1]:.4f} (batch {batch}, {steps} steps each)", flush=True)
        gc.collect()
    print(f"ratio {min(ratios):.4f}")


def _alternate(ours: Step, theirs: Step, steps: int) -> tuple[float, float]:
    """Median seconds of a step of each; the first of both is not counted, and who begins changes."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(steps + 1):
        for side in ((0, 1), (1, 0))[number % 2]:
            start = time.perf_counter()
            (ours, theirs)[side]()
            if number:
                seconds[side].append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _config(name: str, batch: int) -> Any:
    config = asked_for([f"benchmark={name}"]).benchmark
    hyperparameters = replace(config.hyperparameters, global_batch_size=batch, gradient_accumulation_steps=1)
    return replace(config, hyperparameters=hyperparameters, warm_up_steps=1).for_ranks(1)


def _ours(name: str, config: Any, samples: Any) -> Step:
    """A training step of the reference's task, as the harness has it taken."""
    task = importlib.import_module(f"references.{name}.task").Task(config)
    task.build(SEED, inline.join(_job(config)))
    task._forward.train()
    return lambda: task._train_step(iter([samples]))


def _job(config: Any) -> Job:
    """Little of it matters to `Parallel`: one rank on the CPU in fp32."""
    return Job(
        benchmark=config.benchmark,
        reference=config.reference,
        launcher="inline",
        launcher_config={},
        index=0,
        seed=SEED,
        nodes=1,
        nproc_per_node=1,
        threads_per_rank=None,
        device=Device.cpu,
        precision=Precision.fp32,
        drop_caches=False,
        start_limit_seconds=60.0,
        stall_limit_seconds=60.0,
        config={},
        announcement={},
        target=None,
        unit=None,
        schedule=(),
        folder=Path(),
    )


def plain_resnet(config: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> Step:
    """ResNet-50 with LARS."""
    from references.resnet.model import ResNet
    from references.resnet.recipe import optimizer_of

    model = ResNet(config.model)
    optimizer = optimizer_of(model, config.hyperparameters)
    images, labels = samples

    def step() -> None:
        optimizer.zero_grad()
        logits = model(images)
        functional.cross_entropy(logits, labels, label_smoothing=config.label_smoothing).backward()
        optimizer.step()

    return step


def plain_unet3d(config: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> Step:
    """3D U-Net at 128 voxels per side with Nesterov's momentum."""
    from references.unet3d.loss import dice_and_cross_entropy
    from references.unet3d.model import UNet3D

    asked = config.hyperparameters
    model = UNet3D(config.model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=asked.opt_base_learning_rate, momentum=asked.opt_momentum, nesterov=True
    )
    images, labels = samples

    def step() -> None:
        optimizer.zero_grad()
        dice_and_cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def plain_rnnt(config: Any, samples: Any) -> Step:
    """RNN-T on the longest utterance that trains, with LAMB and averaged weights."""
    from references._parts.transducer_loss import transducer_loss
    from references.rnnt.model import RNNT
    from references.rnnt.recipe import clip_norm_of, follow, optimizer_of

    asked = config.hyperparameters
    inputs = config.data.frame_stack * config.data.mel_filters
    model, average = (RNNT(config.model, features=inputs, scale=0.5) for _ in range(2))
    optimizer = optimizer_of(model, asked)
    features, frame_counts, labels, label_counts = samples

    def step() -> None:
        optimizer.zero_grad()
        logits = model(features, labels)
        counts = (frame_counts + 1) // 2
        transducer_loss(logits, labels, counts, label_counts, blank=config.model.labels).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm_of(asked))
        optimizer.step()
        follow(average, model, asked.model_eval_ema_factor)

    return step


CASES = {
    "rnnt": Case(batch=1, rivals=(Rival("plain loop", plain_rnnt),)),
    "resnet": Case(batch=8, rivals=(Rival("plain loop", plain_resnet),)),
    "unet3d": Case(batch=1, rivals=(Rival("plain loop", plain_unet3d),)),
}


if __name__ == "__main__":
    main()
