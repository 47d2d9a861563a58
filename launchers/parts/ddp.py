"""torch's data parallelism (DDP) as a `Parallel`; a single rank needs no process group."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from train_bench.core import rank_messages
from train_bench.core.job import Device, Job, Precision
from train_bench.errors import LaunchError
from train_bench.launchers.parts import meeting
from train_bench.launchers.parts.light_ddp import LightDDP
from train_bench.parallel import Stepped

T = TypeVar("T")

# Batch-norm statistics are averaged before an evaluation, not broadcast before each forward pass. The
# option for this was renamed.
_SYNC_OPTION = "forward_sync_buffers"
if _SYNC_OPTION not in inspect.signature(DistributedDataParallel.__init__).parameters:
    _SYNC_OPTION = "broadcast_buffers"
BUFFERS_STAY_LOCAL: dict[str, Any] = {_SYNC_OPTION: False}

MESSAGES = torch.device("cpu")
"""Device of messages between ranks, which go through Gloo: NCCL would open channels of rank 0 to every other rank, with
buffers on its GPU."""

AUTOCAST = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


class TorchParallel:
    """One rank of a torch process group: Gloo on CPUs, NCCL on GPUs, with Gloo for messages."""

    def __init__(self, job: Job, *, rank: int, local_rank: int, size: int) -> None:
        self._job = job
        self.rank, self.local_rank, self.size = rank, local_rank, size
        self.device = _device(job.device, local_rank)
        self.precision = job.precision
        self._token = rank_messages.read_token(job.ranks_folder)
        _set_matmul_precision(job.precision, self.device)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=job.precision is Precision.fp16)
        self._model: torch.nn.Module | None = None
        self._wrapped: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._local: set[int] = set()
        self._gradients_differ = False
        self._keeps_casts = False
        self._meet()

    @property
    def data_rank(self) -> int:
        """The rank itself."""
        return self.rank

    @property
    def data_ranks(self) -> int:
        """All ranks."""
        return self.size

    @property
    def channels_last(self) -> bool:
        """As the numerics prefer them on its device."""
        return self.precision.prefers_channels_last(self.device.type)

    def _meet(self) -> None:
        """Open the process group, unless this is the only rank."""
        if self.size > 1:
            meeting.open_group(self._job, self.device, rank=self.rank, size=self.size)

    def batch_norm(self, model: torch.nn.Module, *, ranks: int) -> torch.nn.Module:
        """Synchronised batch norm over groups of `ranks` neighbours; torch has it for GPUs only."""
        if ranks == 1:
            return model
        if self.device.type != "cuda":
            raise LaunchError(
                f"Batch-norm statistics over {ranks} ranks need GPUs (torch's SyncBatchNorm); set "
                f"model_bn_span to the batch size of one rank."
            )
        if self.size % ranks:
            raise LaunchError(f"Batch-norm groups of {ranks} ranks do not divide {self.size} ranks.")
        firsts, timeout = range(0, self.size, ranks), meeting.group_timeout(self._job)
        groups = [dist.new_group(list(range(first, first + ranks)), timeout=timeout) for first in firsts]
        group = groups[self.rank // ranks]
        return cast(torch.nn.Module, torch.nn.SyncBatchNorm.convert_sync_batchnorm(model, group))

    def construct(self, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Whole, and moved to the device."""
        return make().to(self.device)

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """DistributedDataParallel, or the model itself for a single rank."""
        self._model = self._wrapped = model
        self._optimizer = optimizer
        self._local = {id(parameter) for parameter in local_params}
        self._gradients_differ = self.size > 1 and bool(self._local)
        if self.size > 1:
            names = [name for name, parameter in model.named_parameters() if id(parameter) in self._local]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
            self._wrapped = LightDDP(
                model,
                device_ids=[self.device] if self.device.type == "cuda" else None,
                gradient_as_bucket_view=True,
                **BUFFERS_STAY_LOCAL,
            )
        return self._wrapped

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast, and DDP's reduction switched on for the last micro-batch alone. Weights are cast once for all
        micro-batches of a step."""
        if isinstance(self._wrapped, DistributedDataParallel):
            self._wrapped.require_backward_grad_sync = last_microbatch
        if not last_microbatch:
            self._keep_casts(True)
        with self._autocast():
            yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Autocast without gradients."""
        with torch.no_grad(), self._autocast():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Scaled if fp16."""
        self._scaler.scale(loss).backward()

    def step(self, *, clip_norm: float | None = None) -> Stepped:
        """Unscale, clip, update, zero. torch's fused optimizers skip a step on the device; for any other one the scaler
        waits until it knows of an overflow."""
        model, optimizer = self._both()
        self._keep_casts(False)
        if clip_norm is not None:
            if self._gradients_differ:
                raise RuntimeError(
                    "Gradient clipping is not supported with sharded tables, whose norm is unknown; leave "
                    "clip_norm out."
                )
            self._scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        if not self._scaler.is_enabled():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return True
        if self._gradients_differ:
            self._share_overflows(optimizer)
        self._scaler.step(optimizer)
        (overflow,) = self._scaler._found_inf_per_device(optimizer).values()
        self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return ScaledStep(overflow)

    def _share_overflows(self, optimizer: torch.optim.Optimizer) -> None:
        """Averaged gradients overflow on all ranks or on none; those of sharded tables on one rank, and then
        all have to skip the step."""
        self._scaler.unscale_(optimizer)
        for overflow in self._scaler._found_inf_per_device(optimizer).values():
            dist.all_reduce(overflow, op=dist.ReduceOp.MAX)

    def state_dict(self) -> dict[str, Any]:
        """The loss scale."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The loss scale."""
        self._scaler.load_state_dict(state)

    def sync_buffers(self) -> None:
        """One all-reduce over all floating-point buffers, concatenated."""
        if self.size == 1:
            return
        model, _ = self._both()
        buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        if not buffers:
            return
        flat = self.mean(torch.cat([buffer.detach().flatten().float() for buffer in buffers]))
        for buffer, values in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(values.view_as(buffer))

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Averages are the same numbers on every rank, and so is what is computed of them: no tolerance."""
        model, optimizer = self._both()
        return whole_state(model, optimizer, self._local)

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """All-reduce of a copy."""
        total = value.detach().clone().to(self.device)
        if self.size > 1:
            dist.all_reduce(total)
        return total

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """All-reduce, divided by the number of ranks."""
        return self.sum(value) / self.size

    def gather_objects(self, value: T) -> list[T] | None:
        """Gather on rank 0."""
        if self.size == 1:
            return [value]
        return rank_messages.gather(value, self.size, self.rank, MESSAGES, self._token)

    def from_rank_zero(self, value: T) -> T:
        """Broadcast."""
        if self.size == 1:
            return value
        received: T = rank_messages.broadcast(value, self.rank, MESSAGES, self._token)
        return received

    def barrier(self) -> None:
        """Device first, then the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Destroy the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def _keep_casts(self, wanted: bool) -> None:
        """Keep weights that autocast has cast beyond its context, or no longer. It forgets them at the end of the
        outermost of nested contexts; one that only counts is around those of all micro-batches."""
        if wanted and not self._keeps_casts:
            torch.autocast_increment_nesting()
        elif self._keeps_casts and not wanted and torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        self._keeps_casts = wanted

    def _both(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        if self._model is None or self._optimizer is None:
            raise RuntimeError("Call Parallel.wrap before a training step.")
        return self._model, self._optimizer


class ScaledStep:
    """Result of a step whose loss was scaled, from () `overflow` of its gradients, 0 or more. It is copied to the host
    behind the step; its truth waits for this copy alone, not for what was queued after it."""

    def __init__(self, overflow: torch.Tensor) -> None:
        self._overflow = overflow.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if overflow.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def __bool__(self) -> bool:
        if self._copied is not None:
            self._copied.synchronize()
        return not self._overflow.item()


def whole_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, local: Container[int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, then the optimizer's tensors as `NAME/KEY`. Parameters whose `id` is
    `local` are left out."""
    named = [(name, weight) for name, weight in model.named_parameters() if id(weight) not in local]
    yield from named
    yield from model.named_buffers()
    if optimizer is None:
        return
    for name, weight in named:
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, torch.Tensor):
                yield f"{name}/{key}", value


def _device(device: Device, local_rank: int) -> torch.device:
    gpus = torch.cuda.device_count() if device is not Device.cpu else 0
    if device is Device.cpu or (device is Device.auto and gpus == 0):
        return torch.device("cpu")
    index = (
        0 if gpus == 1 else local_rank
    )  # a rank that sees one GPU alone; ranks compare theirs when they meet
    if index >= gpus:
        raise LaunchError(
            f"Local rank {local_rank} on {platform.node()} needs a GPU of its own, but {gpus} were found. Reduce "
            "launcher.nproc_per_node, or use device=cpu."
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _set_matmul_precision(precision: Precision, device: torch.device) -> None:
    tf32 = precision is Precision.tf32
    if tf32 and device.type != "cuda":
        raise LaunchError("precision=tf32 needs a GPU; on a CPU use fp32, bf16 or fp16.")
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = tf32
