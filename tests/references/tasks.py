"""What tests of a task say again and again."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from train_bench.progress import Mark


def opening(data: ModuleType) -> Callable[..., Any]:
    """The function of a reference's data that gives its training and its evaluation set, and what else it has."""
    (found,) = (value for name, value in vars(data).items() if name.startswith("open_"))
    return found


def synthetic(reference: str) -> Callable[..., Any]:
    """What makes look-alikes of a reference's batches: it stands with its data, or where these need no torch, with
    its examples."""
    folder = f"train_bench.references.{reference}"
    data = importlib.import_module(f"{folder}.data")
    if not hasattr(data, "synthetic"):
        data = importlib.import_module(f"{folder}.examples")
    return data.synthetic


def mark(samples: int) -> Mark:
    """Where training is to stop, in samples; its place in the log does not matter."""
    return Mark(count=samples, epoch_num=1, first_epoch_num=1, epoch_count=1)


def weights(task: Any) -> list[torch.Tensor]:
    """A copy of all weights and buffers of a task's model."""
    return [tensor.detach().clone() for tensor in task.model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether two lists of tensors are equal bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
