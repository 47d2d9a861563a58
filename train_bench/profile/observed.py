"""Instrumented `Parallel`: its calls mark the phases of a step (level 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import torch

from train_bench.parallel import Parallel, Stepped
from train_bench.profile.timeline import Timeline

PHASES = ("input", "forward", "backward", "communication", "optimizer", "own work", "rest")
"""Phases of a training stretch. Input lies between a step's end and the next forward pass, own work is a benchmark's
inference in training (self-play), communication are collectives that the training thread waits for."""

COLLECTIVES = ("sync_buffers", "sum", "mean", "gather_objects", "from_rank_zero", "barrier")

DIRECT = ("all_reduce", "all_to_all_single", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor")
"""Functions of torch.distributed that a model may call by itself."""


class Deeper(Protocol):
    """Interface of observers of deeper levels."""

    def phase_begins(self, phase: str, loss: torch.Tensor | None = None) -> None: ...
    def phase_ends(self, phase: str) -> None: ...
    def step_ended(self) -> None: ...


class Observed:
    """Proxy of a `Parallel`; attributes are its own, method calls are reported to a timeline while there is one.

    model, optimizer  the wrapped ones
    shared            weights whose gradients ranks average
    wrapped           the objects whose forward is called
    """

    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._timeline: Timeline | None = None
        self._deeper: Deeper | None = None
        self._before = ""
        self._inside = "rest"
        self._order: list[int] | None = None
        self._last: int | None = None
        self._reduces = False
        self.model: torch.nn.Module = torch.nn.Identity()
        for verb in COLLECTIVES:
            setattr(self, verb, self._collective(getattr(parallel, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parallel, name)

    @contextmanager
    def recorded(self, timeline: Timeline | None, deeper: Deeper | None = None) -> Iterator[None]:
        """Context: report all calls to `timeline` until it ends, and to the deeper observers."""
        if timeline is None:
            yield
            return
        self._before, self._inside = "", "rest"
        with ExitStack() as stack:
            if self._parallel.size > 1 and torch.distributed.is_available():
                for name in DIRECT:
                    stack.enter_context(patch.object(torch.distributed, name, self._direct(name)))
            self._timeline, self._deeper = timeline, deeper
            timeline.begin()
            try:
                yield
                timeline.charge("rest")
            finally:
                self._timeline = self._deeper = None

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Context: detect the last gradient."""
        self._order = []
        try:
            yield
        finally:
            self._last = self._order[-1] if self._order else None
            self._order = None

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_accumulation_steps: int = 1,
        local_params: Iterable[torch.nn.Parameter] = (),
    ) -> torch.nn.Module:
        """Wrap the model, with hooks on the gradients if other ranks wait for them."""
        self.model, self.optimizer = model, optimizer
        local = list(local_params)
        known = {id(weight) for weight in local}
        self.shared = [weight for weight in model.parameters() if id(weight) not in known]
        self.wrapped = self._parallel.wrap(
            model,
            optimizer,
            gradient_accumulation_steps=gradient_accumulation_steps,
            local_params=local,
        )
        if self._parallel.size > 1:
            for number, weight in enumerate(model.parameters()):
                if weight.requires_grad:
                    self._watch(number, weight)
        return self.wrapped

    def _watch(self, number: int, weight: torch.nn.Parameter) -> None:
        def arrived(_: torch.Tensor) -> None:
            if self._order is not None:
                self._order.append(number)
            elif number == self._last and self._timeline is not None and self._reduces:
                self._timeline.arrive()

        weight.register_post_accumulate_grad_hook(arrived)

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """The time before is input, or the benchmark's own work after an inference."""
        self._gap("own work" if self._before == "inference" else "input", "forward")
        self._reduces = last_microbatch
        self._begin("forward")
        with self._parallel.forward(last_microbatch=last_microbatch):
            yield
        self._end("forward")
        self._before = "forward"

    @contextmanager
    def inference(self) -> Iterator[None]:
        """In training: the benchmark's own work."""
        self._gap("own work", "own work")
        with self._parallel.inference():
            yield
        self._gap("own work", "rest")
        self._before = "inference"

    def backward(self, loss: torch.Tensor) -> None:
        """Up to the last gradient; the rest is exposed communication."""
        timeline = self._timeline
        if timeline is None:
            self._parallel.backward(loss)
            return
        self._gap("forward", "backward")
        self._begin("backward", loss)
        before = len(timeline.arrivals)
        self._parallel.backward(loss)
        timeline.charge("communication" if len(timeline.arrivals) > before else "backward")
        self._end("backward")
        self._inside = "rest"

    def step(self, *, clip_norm: float | None = None) -> Stepped:
        """End of a step."""
        self._gap("rest", "optimizer")
        self._begin("optimizer")
        stepped = self._parallel.step(clip_norm=clip_norm)
        self._end("optimizer")
        self._gap("optimizer", "rest")
        self._before = "step"
        if self._timeline is not None:
            self._timeline.end_step()
        if self._deeper is not None:
            self._deeper.step_ended()
        return stepped

    def _gap(self, was: str, now: str) -> None:
        """The interval before was `was`, the one after is `now`."""
        if self._timeline is not None:
            self._timeline.charge(was)
            self._inside = now

    def _begin(self, phase: str, loss: torch.Tensor | None = None) -> None:
        if self._deeper is not None:
            self._deeper.phase_begins(phase, loss)

    def _end(self, phase: str) -> None:
        if self._deeper is not None:
            self._deeper.phase_ends(phase)

    def _collective(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def collective(*args: Any, **kwargs: Any) -> Any:
            self._gap("own work" if self._before == "inference" else self._inside, "communication")
            result = method(*args, **kwargs)
            self._gap("communication" if self._parallel.size > 1 else "rest", "rest")
            self._before = "collective"
            return result

        return collective

    def _direct(self, name: str) -> Callable[..., Any]:
        function = getattr(torch.distributed, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("async_op"):
                return function(*args, **kwargs)
            inside = self._inside
            self._gap(inside, "communication")
            result = function(*args, **kwargs)
            self._gap("communication", inside)
            return result

        return called
