"""Fault injection: a rank with an injected fault, `python -m bench.studies.faults FAULT PLAN.json INDEX`.

The product does not know the faults: named attributes are replaced in the process of the rank, before it joins the
others. A fault logs nothing, and the run's configuration lines are those of an honest one.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.launchers import faults as of_launchers
from tests.references.tasks import opening
from train_bench.core.job import read_job
from train_bench.references.parts import lamb, optimizers, stream, training
from train_bench.run import rank

PLANTED = ExitStack()
"""Context managers of faults, open until this process ends."""

NO_AUGMENTATION: dict[str, dict[str, Any]] = {
    "resnet": {"crop_area": [1.0, 1.0], "crop_aspect": [1.0, 1.0], "flip": 0.0},
    "unet3d": {"flip": 0.0, "brightness": 0.0, "noise": 0.0},
    "ssd": {"flip": 0.0, "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0},
}


def no_average(reference: str, launcher: str) -> None:
    """Gradients stay those of the rank."""
    PLANTED.enter_context(of_launchers.no_average(launcher))


def same_shard(reference: str, launcher: str) -> None:
    """Every rank trains on the samples of rank 0."""
    sampler: Any = stream.Sampler
    proper = sampler.__init__
    sampler.__init__ = lambda self, **named: proper(self, **{**named, "rank": 0})


def train_is_eval(reference: str, launcher: str) -> None:
    """The evaluation reads the training set."""
    data = importlib.import_module(f"train_bench.references.{reference}.data")
    proper = opening(data)

    def opened(*arguments: Any) -> tuple[Any, ...]:
        train, _, *more = proper(*arguments)
        return (train, train, *more)

    setattr(sys.modules[proper.__module__], proper.__name__, opened)


def no_warm_up(reference: str, launcher: str) -> None:
    """The schedule begins with the full rate."""

    def change(config: Any) -> None:
        for field in fields(config.hyperparameters):
            counted = field.name.endswith(("warmup_steps", "warmup_epochs"))
            if counted and getattr(config.hyperparameters, field.name):
                setattr(config.hyperparameters, field.name, 0)

    _quietly(change)


def no_augmentation(reference: str, launcher: str) -> None:
    """Training sees every sample as it is."""

    def change(config: Any) -> None:
        for name, value in NO_AUGMENTATION[reference].items():
            setattr(config.data, name, value)

    if reference == "ssd":
        images = importlib.import_module("train_bench.references.ssd.images")
        images.draw_crop = lambda boxes, *_: ((0.0, 0.0, 1.0, 1.0), np.arange(len(boxes)), boxes)
    _quietly(change)


def no_trust_ratio(reference: str, launcher: str) -> None:
    """LAMB moves every tensor by its direction alone."""
    lamb._ratios = lambda weights, updates: [torch.ones(()) for _ in updates]


def no_value(reference: str, launcher: str) -> None:
    """Tree search is told that every position is even; the target model's is not."""
    task = importlib.import_module("train_bench.references.minigo.task").Task
    proper = task._infer

    def infer(self: Any, network: Any) -> Callable[[Any], Any]:
        target = proper(self, network)
        if network is self._opponent:
            return target

        def even(planes: Any) -> Any:
            policies, values = target(planes)
            return policies, np.zeros_like(values)

        return even

    task._infer = infer


def no_restore(reference: str, launcher: str) -> None:
    """The warm-up's momenta stay in the optimizer."""
    optimizers.Optimizer.load_state_dict = lambda self, state: None  # type: ignore[method-assign, assignment]


def other_seed(reference: str, launcher: str) -> None:
    """Rank 1 draws other weights than rank 0."""
    if os.environ["RANK"] == "0":
        return
    task = importlib.import_module(f"train_bench.references.{reference}.task")
    module: Any = training if issubclass(task.Task, training.TrainingTask) else task
    proper = module.derive
    module.derive = lambda seed, *words: proper(seed + int(words[0] == "weights"), *words)


def _quietly(change: Callable[[Any], None]) -> None:
    """The task is given another configuration than the one that is logged."""
    proper = rank._task

    def other(job: Any, config: Any) -> Any:
        changed = copy.deepcopy(config)
        change(changed)
        return proper(job, changed)

    rank._task = other


def none(reference: str, launcher: str) -> None:
    """A clean run."""


FAULTS: dict[str, Callable[[str, str], None]] = {
    "none": none,
    "no-average": no_average,
    "same-shard": same_shard,
    "train-is-eval": train_is_eval,
    "no-warm-up": no_warm_up,
    "no-augmentation": no_augmentation,
    "no-trust-ratio": no_trust_ratio,
    "no-value": no_value,
    "no-restore": no_restore,
    "other-seed": other_seed,
}


def main() -> None:
    """Plant the fault, then be a rank like any other."""
    _, fault, plan, index = sys.argv
    job = read_job(Path(plan), int(index))
    FAULTS[fault](job.reference, job.launcher)
    sys.argv = [rank.__file__, plan, index]
    rank.main()


if __name__ == "__main__":
    main()
