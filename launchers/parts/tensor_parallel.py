"""`launcher.tensor_parallel=N`: matrices are sharded over N neighbouring ranks, which compute the same samples together
(Shoeybi et al., "Megatron-LM", 2019), through torch's DTensor.

The attribute `tensor_parallel` of a model says how, by names of its layers, in which `*` stands for any number:

    "columns"           a rank computes its part of the outputs
    "rows"              a rank has its part of the inputs, and what all compute of them is added up
    "gathered columns"  a rank computes its part of the outputs, and then all have all of them

What it does not name every rank computes for itself, from the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from train_bench.core.job import Job, Precision
from train_bench.core.sharded_tensors import is_sharded, own_part, whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import TorchParallel, whole_state
from train_bench.launchers.parts.dividing import dividing
from train_bench.launchers.parts.filling import Fills

TENSOR = "tensor"
"""Dimension of a mesh: the ranks of a group."""


class TensorParallel(TorchParallel):
    """One rank of a tensor-parallel group of N, of which there may be several. A group trains on its part of every
    batch, and gradients are averaged over groups, each rank's with those of the ranks that hold the same part."""

    def __init__(self, job: Job, *, rank: int, local_rank: int, size: int) -> None:
        if job.precision is Precision.fp16:
            raise LaunchError(
                "launcher.tensor_parallel has no loss scaling, which precision=fp16 needs; use bf16 or fp32."
            )
        self._together: int = job.launcher_config["tensor_parallel"]
        super().__init__(job, rank=rank, local_rank=local_rank, size=size)

    _constructed: torch.nn.Module | None = None

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Without memory; then this rank's shards are drawn, by the first of the ranks that hold the same."""
        fills = Fills()
        model = self._constructed = fills.construct(make)
        self._divide(model)
        model.to_empty(device=self.device)
        fills.draw(model)
        send_first_copy(model, self._alike)
        return model

    @property
    def data_rank(self) -> int:
        """The number of its group."""
        return self.rank // self._together

    @property
    def data_ranks(self) -> int:
        """All groups."""
        return self.size // self._together

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """The model itself, with its layers replaced by sharded ones, in the optimizer's groups, too."""
        if list(local_params):
            raise LaunchError("launcher.tensor_parallel does not support sharded tables; leave it out.")
        self._model = self._wrapped = model
        self._optimizer = optimizer
        if model is not self._constructed:
            with dividing(model, optimizer):
                self._divide(model)
        return model

    def _divide(self, model: torch.nn.Module) -> None:
        """Shard the layers of `model` in place. All ranks have the same weights already, or none."""
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(
            self.device.type, (self.data_ranks, self._together), mesh_dim_names=("data", TENSOR)
        )
        self._alike = mesh.get_group("data")
        self._divide_over(model, mesh)

    def _divide_over(self, model: torch.nn.Module, mesh: Any) -> None:
        """Over the dimension `TENSOR` of a mesh."""
        from torch.distributed.tensor.parallel import parallelize_module

        ways: Mapping[str, str] | None = getattr(model, "tensor_parallel", None)
        if ways is None:
            raise LaunchError(
                f"launcher.tensor_parallel needs a model with a sharding plan, and {type(model).__name__} "
                "has none; leave it out."
            )
        self._group = mesh.get_group(TENSOR)
        styles = {name: _style(way) for name, way in ways.items()}
        parallelize_module(model, mesh[TENSOR], styles, src_data_rank=None)

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Average over groups, clip by the norm of the whole, update, zero."""
        model, optimizer = self._both()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        parts = [own_part(gradient) for gradient in gradients]
        self._average(parts)
        if clip_norm is not None and gradients:
            factor = clip_norm / (self._norm(gradients) + 1e-6)  # as in torch's clip_grad_norm_
            torch._foreach_mul_(parts, factor.clamp(max=1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return True

    def _average(self, parts: list[torch.Tensor]) -> None:
        """Over groups."""
        if self.data_ranks > 1:
            for part in parts:
                dist.all_reduce(part, group=self._alike)
            torch._foreach_div_(parts, self.data_ranks)

    def _norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """() of all gradients."""
        return self._square_norm(gradients).sqrt()

    def _square_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """() of all that the group has of gradients: what every rank of the group has counts once."""
        divided = [_is_divided(gradient) for gradient in gradients]
        pairs = list(zip(map(own_part, gradients), divided, strict=True))
        of_parts, of_others = (
            torch.nn.utils.get_total_norm([part for part, is_part in pairs if is_part is wanted]) ** 2
            for wanted in (True, False)
        )
        dist.all_reduce(of_parts, group=self._group)
        total: torch.Tensor = of_parts + of_others
        return total

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole tensors gathered from all shards of the group."""
        for name, tensor in whole_state(*self._both(), ()):
            yield name, whole(tensor)


def _style(way: str) -> Any:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    if way == "rows":
        return RowwiseParallel()
    return ColwiseParallel(output_layouts=Replicate() if way == "gathered columns" else None)


def _is_divided(tensor: Any) -> bool:
    """True if ranks of a group hold different shards of the tensor."""
    names = (tensor.device_mesh.mesh_dim_names or ()) if is_sharded(tensor) else ()
    return TENSOR in names and not tensor.placements[names.index(TENSOR)].is_replicate()


def send_first_copy(model: torch.nn.Module, group: Any) -> None:
    """Give the weights of the first rank of a group to all, which hold the same: processors of other kinds round
    otherwise what they draw."""
    for weight in model.parameters():
        dist.broadcast(own_part(weight.detach()), group=group, group_src=0)
