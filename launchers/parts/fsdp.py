"""`launcher.shard=fsdp` and `hsdp`: torch's FSDP2. Weights, gradients and the optimizer's state are sharded; a layer is
whole on a rank while it computes. With `hsdp` every host has a copy, and gradients are averaged over copies, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from train_bench.core.job import Job
from train_bench.core.sharded_tensors import narrow_frozen, units_of, whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import AUTOCAST, TorchParallel, whole_state
from train_bench.launchers.parts.dividing import dividing
from train_bench.launchers.parts.filling import Fills
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.parts.tensor_parallel import TENSOR, send_first_copy


class ShardedParallel(TorchParallel):
    """One rank of several. The units of sharding and gathering are the layers of lists of layers, and the remainder of
    the model.

    A step exchanges in every layer, which all ranks do alike. So do evaluations of a model of `construct`. Those of
    any other may take different numbers of batches on different ranks, so that its weights are gathered once for an
    evaluation and stay until training goes on.
    """

    _constructed: torch.nn.Module | None = None

    def __init__(self, job: Job, *, rank: int, local_rank: int, size: int) -> None:
        super().__init__(job, rank=rank, local_rank=local_rank, size=size)
        self._reduces_once: bool = job.launcher_config.get("reduce_once", False)
        self._reduces_cast: bool = not job.launcher_config.get("reduce_fp32", True)
        self._sharing = job.nproc_per_node if job.launcher_config.get("shard") == Shard.hsdp.value else size
        self._together: int = job.launcher_config.get("tensor_parallel", 1)
        self._copies: Any = None

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Without memory; then this rank's shards are drawn. Weights that are not trained are held in the numerics of
        the job where layers cast them."""
        if self.size == 1:
            return super().construct(make)
        fills = Fills()
        model = self._constructed = fills.construct(make)
        kind = AUTOCAST.get(self.precision)
        if kind is not None:
            narrow_frozen(model, kind)
        self._units = self._shard(model, kind)
        model.to_empty(device=self.device)
        fills.draw(model)
        if self._copies is not None:
            send_first_copy(model, self._copies)
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
                    self._units = self._shard(model, None)
        return model

    def _mesh(self) -> Any:
        """Ranks that share a copy of the weights, below which matrices may be divided further; with several copies, the
        ranks that hold the same shard come first."""
        from torch.distributed.device_mesh import init_device_mesh

        sizes = {
            "copies": self.size // self._sharing,
            "shard": self._sharing // self._together,
            TENSOR: self._together,
        }
        sizes = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
        mesh = init_device_mesh(self.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        self._copies = mesh.get_group("copies") if "copies" in sizes else None
        return mesh

    def _shard(self, model: torch.nn.Module, kind: torch.dtype | None) -> list[Any]:
        """Shard the parameters of `model` in place; the units of sharding, the model last. Weights that a step casts to
        `kind` are gathered in it; what is in float32 is another unit, and gradients are reduced in float32 unless
        `launcher.reduce_fp32` is false."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = self._mesh()
        self._divide_below(model, mesh)
        ranks = mesh["shard"] if self._copies is None else mesh["copies", "shard"]
        how: dict[str, Any] = {"mesh": ranks, "reshard_after_forward": True}
        cast = MixedPrecisionPolicy(
            param_dtype=kind,
            reduce_dtype=kind if self._reduces_cast else torch.float32,
            cast_forward_inputs=False,
        )
        units: list[Any] = []
        for unit in units_of(model, casts=kind is not None):
            policy: dict[str, Any] = {"mp_policy": cast} if unit.casts else {}
            units.append(fully_shard(unit.modules, **how, **policy)[0])
        return units

    def _divide_below(self, model: torch.nn.Module, mesh: Any) -> None:
        """Nothing is divided but what is sharded."""

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast; gradients are averaged and divided in every micro-batch, or with `launcher.reduce_once` in the
        last alone."""
        self._gather_for_evaluation(False)
        if self._reduces_once:
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
