"""`Parallel` for meta tensors: one rank of many, with its share of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatch
from typing import Any

import torch

from train_bench.check.one_rank import OneRank
from train_bench.core.job import Device, Precision
from train_bench.core.sharded_tensors import narrow_frozen

AUTOCAST = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.bfloat16}
"""Both formats take two bytes; for float16 CPUs have no LSTM kernel and would take thousands of small steps instead."""


class DryParallel(OneRank):
    """This process alone, in the job's numerics and with the layout of its `kernels`. `phase` is called with the phase
    of a step: "forward", "backward", "update", or "between" these. What batch norm over ranks exchanges is small and
    left out.

    model, optimizer  the wrapped ones
    local             parameters that ranks do not share, by id
    together          ranks of a tensor-parallel group: the same samples, with divided matrices
    casts             FSDP2 shards and gathers weights in the numerics of the job
    built             peak bytes of weights and buffers before training: whole, plus the shards that replace them
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        together: int,
        kernels: Device,
        precision: Precision,
        casts: bool,
        phase: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        super().__init__(rank=rank, size=size)
        self.kernels, self.precision = kernels, precision
        self.together, self._casts = together, casts
        self._phase = phase

    @property
    def data_rank(self) -> int:
        """Index of its data-parallel group."""
        return self.rank // self.together

    @property
    def data_ranks(self) -> int:
        """Number of data-parallel groups."""
        return self.size // self.together

    @property
    def channels_last(self) -> bool:
        """As the numerics prefer them on the device of the kernels; that of the meta tensors is the CPU."""
        return self.precision.prefers_channels_last(self.kernels.value)

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Whole; what is not trained is held as a sharding launcher does."""
        model = make()
        if self._casts:
            narrow_frozen(model, AUTOCAST[self.precision])
        return model

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """The model itself, with the shards of its matrices that the first rank of a group has."""
        self.built = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
        if self.together > 1:
            ways: Mapping[str, str] = model.tensor_parallel  # type: ignore[assignment]
            for name, module in model.named_modules():
                for pattern, way in ways.items():
                    if fnmatch(name, pattern):
                        _divide(module, way, self.together)
                        self.built += module.get_parameter("weight").nbytes
        return super().wrap(model, optimizer, local_params=local_params)

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast."""
        with self._phase("forward"), self._autocast():
            yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Autocast without gradients."""
        with torch.no_grad(), self._autocast():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """No loss scaling: a factor takes no memory."""
        with self._phase("backward"), torch.autograd.set_multithreading_enabled(False):
            loss.backward()

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Clip, update, zero."""
        with self._phase("update"):
            return super().step(clip_norm=clip_norm)

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        return nullcontext() if dtype is None else _cast(self.device.type, dtype)


def _divide(layer: Any, way: str, ranks: int) -> None:
    """A layer with the first shard of its weight, the largest; `launchers/parts/tensor_parallel.py` has the ways."""
    rows = isinstance(layer, torch.nn.Embedding) != (way == "rows")
    width = layer.weight.shape[int(isinstance(layer, torch.nn.Embedding))]
    layer.weight.data = layer.weight.data.chunk(ranks, dim=int(rows))[0].clone()
    if way == "gathered columns":
        layer.register_forward_hook(
            lambda _layer, _inputs, output: torch.cat([output] * ranks, dim=-1)[..., :width]
        )


@contextmanager
def _cast(device: str, dtype: torch.dtype) -> Iterator[None]:
    """torch's autocast, which is refused for a GPU that is not there."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
