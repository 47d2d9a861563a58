"""`launcher.shard` with `launcher.tensor_parallel`: a mesh of two dimensions, or of three with copies on several hosts.
Matrices are divided over the ranks of a tensor-parallel group, and what each has of them is sharded over groups."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel


class ShardedTensorParallel(ShardedParallel, TensorParallel):
    """One rank of a tensor-parallel group whose weights, gradients and optimizer state are sharded over groups."""

    def _divide_below(self, model: torch.nn.Module, mesh: Any) -> None:
        self._divide_over(model, mesh)
        self._of_shards = mesh.get_group("shard")

    def _average(self, parts: list[torch.Tensor]) -> None:
        """Gradients were averaged in the backward pass."""

    def _norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        total = self._square_norm(gradients)
        dist.all_reduce(total, group=self._of_shards)
        return total.sqrt()
