"""A rank of DeepSpeed's engine: data parallelism and ZeRO, stages 1 and 2. For stage 3 see `zero3.py`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from train_bench.core.job import Job, Precision
from train_bench.errors import LaunchError
from train_bench.launchers.deepspeed.config import Config
from train_bench.launchers.parts import meeting
from train_bench.launchers.parts.ddp import TorchParallel, whole_state

GROWTH_INTERVAL = 2000


class DeepSpeedParallel(TorchParallel):
    """One rank of a DeepSpeed engine, over torch's process group.

    Numerics are torch's autocast over fp32 weights, as with every launcher, not DeepSpeed's own, which would
    hold the weights in 16 bits. The loss is scaled here, because from stage 1 on the engine's scaling for
    autocast looks for overflows in a rank's own piece of the gradients alone.
    """

    OPTIONS: ClassVar[Mapping[str, Any]] = {}
    """ZeRO options besides the stage."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            job,
            rank=int(os.environ["RANK"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            size=int(os.environ["WORLD_SIZE"]),
        )
        self._stage: int = job.launcher_config["zero_stage"]
        self._process = uuid.uuid4().hex

    def _meet(self) -> None:
        """Open the process group, for a single rank too, and have DeepSpeed compile its operators. The device is set
        before DeepSpeed is imported, else it would detect one itself."""
        os.environ["DS_ACCELERATOR"] = self.device.type
        import deepspeed
        from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

        deepspeed.logger.setLevel("ERROR")
        meeting.open_group(self._job, self.device, rank=self.rank, size=self.size)
        deepspeed.init_distributed(
            "nccl" if self.device.type == "cuda" else "gloo", dist_init_required=False, verbose=False
        )
        dist.barrier()
        _shared_memory(self.rank).unlink(missing_ok=True)
        self._loss_scale = DynamicLossScaler(
            init_scale=2.0**16 if self.precision is Precision.fp16 else 1.0,
            scale_window=GROWTH_INTERVAL,
            min_scale=1.0,
            delayed_shift=1,
            consecutive_hysteresis=False,
            raise_error_at_min_scale=False,
        )

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """DeepSpeed's engine around the model and the reference's own optimizer. From stage 1 on it replaces the
        parameters in its groups by this rank's flat piece of them; the groups stay, so that a learning rate changed
        there takes effect."""
        if list(local_params):
            raise LaunchError(
                "launcher=deepspeed does not support sharded tables; use launcher=torchrun or launcher=slurm."
            )
        import deepspeed

        self._model, self._optimizer = model, optimizer
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        with _contiguous(model, keep_layout=self._stage == 0):
            self._engine, *_ = deepspeed.initialize(
                model=_Numerics(model, self),
                optimizer=optimizer,
                dist_init_required=False,
                config={
                    "train_micro_batch_size_per_gpu": 1,  # required, but the engine only counts with it
                    "gradient_accumulation_steps": gradient_accumulation_steps,
                    "zero_optimization": {"stage": self._stage, **self.OPTIONS},
                    "zero_allow_untested_optimizer": True,
                    "gradient_clipping": 0.0,  # else 1.0; `step` clips
                },
            )
        wrapped: torch.nn.Module = self._engine
        return wrapped

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Autocast for what is computed outside the model, the loss; the engine averages in the last micro-batch."""
        self._engine.set_gradient_accumulation_boundary(last_microbatch)
        with self._autocast():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Scaled if fp16; divided by the number of micro-batches already."""
        self._engine.backward(loss * self._loss_scale.loss_scale, scale_wrt_gas=False)

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Unscale, clip, update, zero."""
        stepped = self._step_whole(clip_norm) if self._stage == 0 else self._step_pieces(clip_norm)
        if self.precision is Precision.fp16:
            self._loss_scale.update_scale(not stepped)
        return stepped

    def _step_whole(self, clip_norm: float | None) -> bool:
        """Stage 0: all averaged gradients on every rank."""
        model, _ = self._both()
        if self.precision is Precision.fp16:
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            torch._foreach_div_(gradients, self._loss_scale.loss_scale)
            if not torch.nn.utils.get_total_norm(gradients).isfinite():
                self._engine.zero_grad()
                return False
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        self._engine.step()
        return True

    def _step_pieces(self, clip_norm: float | None) -> bool:
        """From stage 1 on: ZeRO's optimizer unscales the pieces of the averaged gradients, clips them by their common
        norm, and skips the update on all ranks if that is not finite."""
        zero = self._engine.optimizer
        zero.clip_grad = clip_norm or 0.0
        zero.override_loss_scale(self._loss_scale.loss_scale)
        self._engine.step()
        zero.override_loss_scale(1.0)
        return not zero.overflow

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """From stage 1 on the optimizer's state is in pieces, and the weights are gathered from pieces, so that ranks
        which do not average would hold the same model. There the averaged gradients of a probe have to be the same,
        too."""
        model, optimizer = self._both()
        yield from whole_state(model, optimizer if self._stage == 0 else None, ())
        if self._stage > 0:
            yield "the average of a probe", self._averaged_probe(model)

    def _averaged_probe(self, model: torch.nn.Module) -> torch.Tensor:
        """Largest number in this rank's piece of the averaged gradients, if those of rank r are r + 1 everywhere: (n +
        1) / 2 of n ranks. No step is taken with them."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        zero = self._engine.optimizer
        self._engine.set_gradient_accumulation_boundary(True)
        probe = torch.stack([weight.sum() for weight in weights]).sum() * (self.rank + 1)
        self._engine.backward(probe, scale_wrt_gas=False)
        pieces = [
            piece.max() for group in zero.averaged_gradients.values() for piece in group if piece.numel()
        ]
        zero.zero_grad()
        return torch.stack(pieces).max()

    def state_dict(self) -> dict[str, Any]:
        """The loss scale; from stage 1 on also the owner of the optimizer's pieces."""
        scale = self._loss_scale
        state = {"scale": scale.cur_scale, "steps": scale.cur_iter, "overflow": scale.last_overflow_iter}
        return state | ({"process": self._process} if self._stage > 0 else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The loss scale; from stage 1 on the weights, which ZeRO updates in its own copy, are taken from the model. A
        file of another process holds one rank's piece of the optimizer's state."""
        if self._stage > 0 and state.get("process") != self._process:
            raise LaunchError(f"{Config(zero_stage=self._stage).cannot_continue}; use launcher.zero_stage=0.")
        scale = self._loss_scale
        scale.cur_scale, scale.cur_iter = state["scale"], state["steps"]
        scale.last_overflow_iter = state["overflow"]
        if self._stage > 0:
            self._engine.optimizer.refresh_fp32_params()


def _shared_memory(rank: int) -> Path:
    """Path of the shared memory of DeepSpeed's all-reduce on CPUs, 66 MiB a rank, which it does not free. Once all
    ranks have opened it, it needs no name, and it is freed with the last of them."""
    rendezvous = f"{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}"
    return Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_{rendezvous}_{rank}")


@contextmanager
def _contiguous(model: torch.nn.Module, *, keep_layout: bool) -> Iterator[None]:
    """The engine broadcasts contiguous weights only; channels-last ones get their layout back, unless ZeRO
    has made pieces of a flat tensor of them."""
    before = [weight.data for weight in model.parameters()]
    for weight in model.parameters():
        weight.data = weight.data.clone(memory_format=torch.contiguous_format)
    yield
    if keep_layout:
        for weight, data in zip(model.parameters(), before, strict=True):
            weight.data = data.copy_(weight.data)


class _Numerics(torch.nn.Module):
    """The model inside the autocast of `parallel`; the engine ends any that is entered outside of it."""

    def __init__(self, model: torch.nn.Module, parallel: TorchParallel) -> None:
        super().__init__()
        self.model = model
        self._autocast = parallel._autocast

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with self._autocast():
            return self.model(*inputs, **named)
