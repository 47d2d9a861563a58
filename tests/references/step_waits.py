"""Steps of references on a pretended device, for `bench/host_waits.py` and the test of host waits."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path

import torch

from tests.references import configs
from tests.references.one_rank import OneRank
from tests.references.pretended_device import DEVICE, Waits, pin, pretended
from tests.run.fakes import job
from train_bench.core.job import Precision
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.references.parts.lamb import LAMB
from train_bench.references.parts.lars import LARS
from train_bench.references.parts.optimizers import SGD, Adagrad, Adam, AdamW


def of_reference(name: str, *overrides: str) -> Waits:
    """Waits and launches of the second step of a reference's mini scale."""
    config = getattr(configs, name)(f"{name}_mini", "warm_up_steps=0", *overrides)
    with pretended() as found:
        parallel = OneRank()
        parallel.device = DEVICE
        task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
        task.build(1, parallel)
        task.forward.train()
        for _ in range(2):
            found.clear()
            batch = pin(task.synthetic(task.local_batch_size))
            found.clear()
            task.train_step(iter([batch] * task.microbatches))
    return found


OPTIMIZERS: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda weights: SGD(weights, lr=0.1, momentum=0.9, foreach=True),
    "SGD, fused": lambda weights: SGD(weights, lr=0.1, momentum=0.9, fused=True),
    "Adam, fused": lambda weights: Adam(weights, lr=0.1, fused=True),
    "AdamW, fused": lambda weights: AdamW(weights, lr=0.1, fused=True),
    "Adagrad": lambda weights: Adagrad(weights, lr=0.1),
    "LAMB": lambda weights: LAMB(
        [{"params": weights}], lr=0.1, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01
    ),
    "LARS": lambda weights: LARS([{"params": weights}], lr=0.1, momentum=0.9, weight_decay=0.01),
}


def of_fp16(name: str, clip_norm: float | None = None) -> Waits:
    """Waits and launches of the second step of a linear layer in fp16."""
    with pretended() as found:
        parallel = TorchParallel(job(Path("out"), precision=Precision.fp16), rank=0, local_rank=0, size=1)
        parallel.device = DEVICE
        model = torch.nn.Linear(8, 8).to(DEVICE)
        wrapped = parallel.wrap(model, OPTIMIZERS[name](list(model.parameters())))
        inputs = torch.ones(8, 8, device=DEVICE)
        for _ in range(2):
            found.clear()
            with parallel.forward():
                parallel.backward(wrapped(inputs).float().mean())
            parallel.step(clip_norm=clip_norm)
    return found


def fp16_steps() -> dict[str, Callable[[], Waits]]:
    """Steps by the name of their row."""
    return {f"fp16, {name}": functools.partial(of_fp16, name) for name in OPTIMIZERS}
