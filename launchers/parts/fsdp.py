"""`launcher.shard=fsdp`: torch's FSDP2. Weights, gradients and the optimizer's state are sharded; a layer is whole on a
rank while it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from train_bench.core.sharded_tensors import layers_of, whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import TorchParallel, whole_state
from train_bench.launchers.parts.dividing import dividing


class ShardedParallel(TorchParallel):
    """One rank of several. The units of sharding and gathering are the layers of lists of layers, and the remainder of
    the model.

    A training step exchanges in every layer, which all ranks do alike. Evaluations may take different numbers of
    batches on different ranks, so for an evaluation the weights are gathered once and stay until training goes on.
    """

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """The model itself, with its parameters replaced by sharded ones, in the optimizer's groups, too."""
        if list(local_params):
            raise LaunchError("launcher.shard=fsdp does not support sharded tables; leave it out.")
        self._model = self._wrapped = model
        self._optimizer = optimizer
        self._units: list[Any] = []
        self._evaluating = False
        if self.size > 1:
            self._divide(model, optimizer)
        return model

    def _divide(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.size,))
        with dividing(model, optimizer):
            for module in (*layers_of(model), model):
                self._units.append(fully_shard(module, mesh=mesh, reshard_after_forward=True))

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast; gradients are averaged and divided in the last micro-batch alone."""
        self._gather_for_evaluation(False)
        for unit in self._units:
            unit.set_requires_gradient_sync(last_microbatch, recurse=False)
        with self._autocast():
            yield

    def sync_buffers(self) -> None:
        """Averages of buffers, and all weights on every rank."""
        super().sync_buffers()
        self._gather_for_evaluation(True)

    def _gather_for_evaluation(self, wanted: bool) -> None:
        if not wanted and not self._evaluating:
            return  # but gathered again after a `state_dict`, which shards them
        self._evaluating = wanted
        for unit in reversed(self._units):  # the model first, which prepares all others
            unit.set_reshard_after_forward(not wanted, recurse=False)
            if wanted:
                unit.unshard()
            else:
                unit.reshard()

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole tensors gathered from all shards, the same on all ranks by construction; their digest is that of the
        model."""
        self._gather_for_evaluation(False)
        for name, tensor in whole_state(*self._both(), ()):
            yield name, whole(tensor)
