"""ZeRO stage 3: weights, too, are sharded; a layer is whole on a rank while it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from train_bench.launchers.deepspeed.engine import DeepSpeedParallel


class DividedWeights(DeepSpeedParallel):
    """One rank. Between steps its parameters are empty; ZeRO's optimizer holds its pieces of them.

    A training step exchanges in every layer, which all ranks do alike. Evaluations may take different numbers of
    batches on different ranks, so for an evaluation the weights are gathered once and stay until training goes on.
    """

    OPTIONS: ClassVar[Mapping[str, Any]] = {"stage3_param_persistence_threshold": 0}
    """Else small weights stay whole."""

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any
    ) -> torch.nn.Module:
        """DeepSpeed's engine, which leaves each parameter of `model` empty."""
        self._gathered: Any = None
        wrapped = super().wrap(model, optimizer, **options)
        self._engine.optimizer._set_fp32_optimizer_param_groups()
        return wrapped

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Forward pass with sharded weights again."""
        self._divide()
        with super().forward(last_microbatch=last_microbatch):
            yield

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Gathered layer by layer outside of an evaluation, which all ranks then have to do alike."""
        with super().inference():
            yield
        if self._gathered is None:
            self._engine.optimizer._partition_all_parameters()

    def _step_pieces(self, clip_norm: float | None) -> bool:
        """ZeRO removes its pieces from the optimizer's groups, which it updates one after the other; outside of a step
        they are put back, else the optimizer could not identify their state."""
        zero = self._engine.optimizer
        zero._clear_fp32_optimizer_param_groups()
        stepped = super()._step_pieces(clip_norm)
        zero._set_fp32_optimizer_param_groups()
        return stepped

    def sync_buffers(self) -> None:
        """Averages of buffers, and all weights on every rank."""
        super().sync_buffers()
        self._gather()

    def _gather(self) -> None:
        """Gather all weights, without the hooks that would shard a layer after its forward pass."""
        if self._gathered is not None:
            return
        import deepspeed

        model, _ = self._both()
        self._gathered = deepspeed.zero.GatheredParameters(model.parameters())
        self._gathered.__enter__()
        offload = self._engine.optimizer.parameter_offload
        offload.destroy()
        offload.forward_hooks, offload.backward_hooks = [], []

    def _divide(self) -> None:
        if self._gathered is None:
            return
        self._gathered.__exit__(None, None, None)
        self._gathered = None
        self._engine.optimizer.parameter_offload.setup_zero_stage3_hooks()

    def replicated(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Weights gathered from all pieces, the same on all ranks by construction, and the probe."""
        self._gather()
        yield from super().replicated()

    def state_dict(self) -> dict[str, Any]:
        """The loss scale, whose pieces these are, and the pieces."""
        pieces = [piece.detach() for piece in self._engine.optimizer.fp32_partitioned_groups_flat]
        return super().state_dict() | {"pieces": pieces}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse a file of another process, as at stages 1 and 2."""
        if state.get("process") == self._process:
            for piece, saved in zip(
                self._engine.optimizer.fp16_partitioned_groups_flat, state["pieces"], strict=True
            ):
                piece.copy_(saved)
        super().load_state_dict(state)
