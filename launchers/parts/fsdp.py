"""`launcher.shard=fsdp`: torch's FSDP2. Weights, gradients and the optimizer's state are sharded; a layer is whole on a
rank while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from train_bench.core.sharded_tensors import layers_of, whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import TorchParallel, whole_state
from train_bench.launchers.parts.dividing import dividing
from train_bench.launchers.parts.filling import Fills


class ShardedParallel(TorchParallel):
    """One rank of several. The units of sharding and gathering are the layers of lists of layers, and the remainder of
    the model.

    A step exchanges in every layer, which all ranks do alike. So do evaluations of a model of `construct`. Those of
    any other may take different numbers of batches on different ranks, so that its weights are gathered once for an
    evaluation and stay until training goes on.
    """

    _constructed: torch.nn.Module | None = None

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Without memory; then this rank's shards are drawn."""
        if self.size == 1:
            return super().construct(make)
        fills = Fills()
        model = self._constructed = fills.construct(make)
        self._units = self._shard(model)
        model.to_empty(device=self.device)
        fills.draw(model)
        return model

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
        self._evaluating = False
        if model is not self._constructed:
            self._units = []
            if self.size > 1:
                with dividing(model, optimizer):
                    self._units = self._shard(model)
        return model

    def _shard(self, model: torch.nn.Module) -> list[Any]:
        """Shard the parameters of `model` in place; the units of sharding, the model last."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.size,))
        units = (*layers_of(model), model)
        return [fully_shard(module, mesh=mesh, reshard_after_forward=True) for module in units]

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast; gradients are averaged and divided in the last micro-batch alone."""
        self._gather_for_evaluation(False)
        for unit in self._units:
            unit.set_requires_gradient_sync(last_microbatch, recurse=False)
        with self._autocast():
            yield

    def sync_buffers(self) -> None:
        """Averages of buffers, and all weights on every rank unless the model was constructed sharded."""
        super().sync_buffers()
        if self._model is not self._constructed:
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
