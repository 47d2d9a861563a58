"""Recording of a training rank: a wrapping `Parallel`, and hooks on modules and optimizer."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import numpy as np
import torch

from train_bench.core.sharded_tensors import is_sharded, own_part, part
from train_bench.core.sharded_tensors import whole as whole_of
from train_bench.equivalence.recording import LAST, START
from train_bench.parallel import Parallel, Stepped

KEPT = 1 << 15
"""Elements kept of a larger tensor, always the same ones for a size."""

DETAILED = 2
"""Steps whose outputs, gradients, weights and optimizer state are kept; of the others losses and rates."""


class StopRecording(Exception):
    """Raised once the recording is complete."""


class Notes:
    """Recording of one rank: arrays by name, in the order in which they came, and plain values."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.facts: dict[str, Any] = {"shapes": {}, "operators": {}}

    def record(self, name: str, tensor: torch.Tensor, *, whole: bool = False) -> None:
        """Record a tensor, or some elements of a large one, in the order of its dimensions whatever its layout."""
        self.facts["shapes"][name] = list(tensor.shape)
        self.arrays[name] = kept(tensor.detach(), whole=whole)


def kept(tensor: torch.Tensor, *, whole: bool = False) -> np.ndarray:
    """Elements of a tensor that are compared. A collective for tensors that ranks hold parts of."""
    held = whole_of(tensor)
    flat = (held.to_dense() if held.is_sparse else held).reshape(-1)
    if flat.numel() > KEPT and not whole:
        chosen = np.random.default_rng(flat.numel()).integers(flat.numel(), size=KEPT)
        flat = flat[torch.from_numpy(np.sort(chosen)).to(flat.device)]
    if flat.dtype in (torch.bfloat16, torch.float16):
        flat = flat.float()
    return np.array(flat.cpu().numpy())


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors of nested sequences, mappings and plain values."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [tensor for part in value for tensor in tensors_of(part)] if isinstance(value, list | tuple) else []
    )


def given_of(value: Any) -> list[torch.Tensor]:
    """Arguments of a model, flattened: all tensors and numbers of nested sequences, mappings and dataclasses in their
    order, numbers as tensors of no dimension."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, int | float):
        return [torch.tensor(value)]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for part in value for tensor in given_of(part)] if isinstance(value, list | tuple) else []


class Observer:
    """`Parallel` that delegates to another one and records its calls and the model.

    notes       the recording
    steps       optimizer steps since `begin`
    answered    samples, or the model's units of them, of evaluations
    model       the wrapped one, after `wrap`
    optimizer   likewise
    local       parameters that other ranks do not hold, by name
    divided     whether every rank holds a part of each parameter
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, parallel: Parallel, notes: Notes, *, hooked: bool = True, given: bool = False) -> None:
        self._parallel = parallel
        self.notes, self.steps, self.local, self.divided = notes, 0, set[str](), False
        self._hooked, self._given = hooked, given
        self._micro = 0
        self._phase: str | None = None
        self._calls: dict[str, int] = {}
        self._observing = False
        self._evaluated = set[str]()
        self._inferring = self._glancing = False
        self.answered = 0

    def __getattr__(self, name: str) -> Any:
        if self._glancing and name in ("sum", "mean", "gather_objects"):
            raise StopRecording  # a rank without a batch; the others do not come to this
        return getattr(self._parallel, name)

    def wrap(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
        """Wrap like the launcher; names are recorded first, because a launcher may change the optimizer's groups."""
        self.model, self.optimizer = model, optimizer
        local = {id(weight) for weight in options.get("local_params", ())}
        options["local_params"] = [weight for weight in model.parameters() if id(weight) in local]
        names = {id(weight): name for name, weight in model.named_parameters()}
        self.local = {name for name, weight in model.named_parameters() if id(weight) in local}
        self.groups = [
            [names.get(id(weight), "?") for weight in group["params"]] for group in optimizer.param_groups
        ]
        self._wrapped = self._parallel.wrap(model, optimizer, **options)
        self.divided = any(map(is_sharded, model.parameters()))
        return self._wrapped

    def begin(self, others: dict[str, torch.nn.Module]) -> None:
        """Start recording: the model's modules, and those of the task's `others`."""
        self._observing, self.steps, self._micro = True, 0, 0
        self.notes.facts.update(losses=[], groups=self.groups, options=[])
        self.optimizer.register_step_pre_hook(self._gradients)
        if self._hooked:
            for prefix, model in {"": self.model, **others}.items():
                for name, module in model.named_modules():
                    module.register_forward_hook(self._output(prefix + name, type(module).__name__))
            self.model.register_forward_pre_hook(self._inputs, with_kwargs=True)
            if self._given:
                self.model.register_forward_hook(self._whole)

    @contextmanager
    def forward(self, *, last_microbatch: bool = True) -> Iterator[None]:
        """Record module outputs of a micro-batch; micro-batches are counted over all ranks."""
        number = self._micro * self._parallel.size + self._parallel.rank
        self._phase, self._calls = f"{self.steps}.{number}", {}
        with self._parallel.forward(last_microbatch=last_microbatch):
            yield
        self._phase = None
        self._micro += 1

    @contextmanager
    def peek(self) -> Iterator[None]:
        """Context: an evaluation ends with its first batch, which gives the outputs of weights that are equal on both
        sides. Afterwards modules are in their previous mode."""
        modes = [(module, module.training) for module in self._wrapped.modules()]
        self._glancing = True
        try:
            yield
        except StopRecording:
            pass
        finally:
            self._glancing = False
            for module, training in modes:
                module.training = training

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Record module inputs and outputs of the first batch before the first step, and after the last."""
        before, when = self._phase, LAST if self.steps else START
        first = self._observing and when not in self._evaluated and not self._parallel.rank
        self._phase, self._calls = (when if first else None), {}
        self._inferring = True
        try:
            with self._parallel.inference():
                yield
        finally:
            self._inferring = False
            self._phase = before
        if self._observing:
            self._evaluated.add(when)
        if self._glancing:
            raise StopRecording

    def backward(self, loss: torch.Tensor) -> None:
        """Record the loss."""
        if self._observing:
            losses = self.notes.facts["losses"]
            losses += [0.0] * (self.steps + 1 - len(losses))
            losses[self.steps] += float(loss.detach())
        self._parallel.backward(loss)
        if self._given and self._observing and self._phase == "0.0":
            for name, weight in self.model.named_parameters():
                if weight.grad is not None:
                    self.notes.record(f"backward/{name}", weight.grad)
            for name, buffer in self.model.named_buffers():
                self.notes.record(f"buffers/{name}", buffer)

    def step(self, *, clip_norm: float | None = None) -> Stepped:
        """Record the options of the groups before, weights and state after."""
        if self._observing:
            self.notes.facts["options"].append(options_of(self.optimizer))
        stepped = self._parallel.step(clip_norm=clip_norm)
        if self._observing and self.steps < DETAILED:
            self.state(f"{self.steps}")
        self.steps, self._micro = self.steps + 1, 0
        return stepped

    def state(self, step: str) -> None:
        """Record weights, buffers and the optimizer's state."""
        for name, weight in self.model.named_parameters():
            if self._mine(name):
                self.notes.record(f"step/{step}/{name}", weight)
                for key, value in self.optimizer.state.get(weight, {}).items():
                    if isinstance(value, torch.Tensor):
                        self.notes.record(f"state/{step}/{name}/{key}", value)
        if self._parallel.rank == 0:
            for name, buffer in self.model.named_buffers():
                self.notes.record(f"statistics/{step}/{name}", buffer)

    def _mine(self, name: str) -> bool:
        return name in self.local or self.divided or self._parallel.rank == 0

    def _gradients(self, *_: Any) -> None:
        if self.steps < DETAILED:
            for name, weight in self.model.named_parameters():
                if weight.grad is not None and self._mine(name):
                    self.notes.record(f"gradients/{self.steps}/{name}", weight.grad)

    def _inputs(self, _: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._inferring:
            self.answered += next((len(tensor) for tensor in tensors_of([*inputs, named]) if tensor.dim()), 0)
        if self._phase is None:
            return
        for number, tensor in enumerate(tensors_of([*inputs, named])):
            if self._phase in (START, LAST):
                self.notes.record(f"evaluation/{self._phase}/(input):{number}", tensor)
                continue
            if self.steps < DETAILED:
                self.notes.record(f"inputs/{self._phase}/{number}", tensor)
            if tensor.dim() > 1:
                self.notes.arrays[f"samples/{self._phase}/{number}"] = per_sample(tensor)
            if tensor.dim() > 3 and tensor.is_floating_point():
                self.notes.arrays[f"channels/{self._phase}/{number}"] = per_channel(tensor)

    def _whole(self, _: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if self._phase != "0.0":
            return
        for number, tensor in enumerate(given_of(inputs)):
            self.notes.record(f"given/{number}", tensor, whole=True)
            self.notes.arrays[f"given_shape/{number}"] = np.array(tensor.shape)

        def pulled(number: int) -> Any:
            return lambda gradient: self.notes.record(f"cotangent/{number}", gradient, whole=True)

        for number, tensor in enumerate(tensors_of(output)):
            tensor.register_hook(pulled(number))

    def _output(self, name: str, kind: str) -> Any:
        def record_output(_module: Any, _inputs: Any, output: Any) -> None:
            phase = self._phase
            evaluated = phase in (START, LAST)
            if phase is None or not (evaluated or self.steps < DETAILED):
                return
            call = self._calls[name] = self._calls.get(name, 0) + 1
            place = f"evaluation/{phase}" if evaluated else f"forward/{phase}"
            for number, tensor in enumerate(tensors_of(output)):
                key = f"{place}/{name or '(model)'}" + f"#{call}" * (call > 1) + f":{number}" * (number > 0)
                self.notes.record(key, tensor)
                done = re.sub(r"Backward\d*$", "", getattr(tensor.grad_fn, "name", str)())
                self.notes.facts["operators"][key] = f"{kind}{', ' if done else ''}{done}"

        return record_output


class ObservingParallel(Observer):
    """One process without training: steps record the options of the groups and do nothing else."""

    def step(self, *, clip_norm: float | None = None) -> bool:
        """Always a step."""
        self.notes.facts["options"].append(options_of(self.optimizer))
        return True


def as_parallel(observer: Observer) -> Parallel:
    return cast(Parallel, observer)


def options_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Options of each group without parameters and counts: rates, decay, momenta."""
    return [
        {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in group.items()
            if key not in ("params", "steps") and isinstance(value, int | float | tuple | bool | str)
        }
        for group in optimizer.param_groups
    ]


def per_sample(tensor: torch.Tensor) -> np.ndarray:
    """Features of each sample, (features, samples): mean, deviation, extremes, and the linear trend along its last
    dimension."""
    flat = tensor.detach().double().flatten(1)
    lean = tensor.detach().double() @ torch.linspace(
        -1, 1, tensor.shape[-1], dtype=torch.float64, device=tensor.device
    )
    features = (
        flat.mean(1),
        flat.std(1, correction=0),
        flat.amin(1),
        flat.amax(1),
        lean.reshape(len(flat), -1).mean(1),
    )
    return np.array(torch.stack(features).cpu().numpy())


def per_channel(tensor: torch.Tensor) -> np.ndarray:
    """(channels, samples) means of images or volumes, (samples, channels, ...)."""
    return np.array(tensor.detach().double().flatten(2).mean(2).T.cpu().numpy())


class InFloat64(torch.overrides.TorchFunctionMode):
    """Mode in which single precision becomes double."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        other = {torch.float32: torch.float64}
        args = tuple(other.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args)
        kwargs = {
            key: other.get(value, value) if isinstance(value, torch.dtype) else value
            for key, value in (kwargs or {}).items()
        }
        return func(*args, **kwargs)


def doubled(value: Any) -> Any:
    """Nested sequences with their floating-point tensors in double precision."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(doubled, value))
    return type(value)(map(doubled, value)) if isinstance(value, list | tuple) else value


def widen(model: torch.nn.Module) -> None:
    """Convert weights, buffers and inputs to double precision from now on."""
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for tensor in table.values():
                if tensor is not None and tensor.is_floating_point():
                    tensor.data = tensor.data.double()
    model.register_forward_pre_hook(
        lambda _, inputs, named: (doubled(inputs), {key: doubled(value) for key, value in named.items()}),
        with_kwargs=True,
        prepend=True,
    )


def round_otherwise(model: torch.nn.Module, unit: float, seed: int, rank: int) -> None:
    """Perturb every weight, and every output and incoming gradient of a layer, by `unit` up or down, as rounding in
    another order would. Weights change by that share of themselves, the same on all ranks; others by that share of
    themselves or of the tensor's size, if that is more, because sums cancel. The errors of a gradient have a bias to
    one side, because the errors of a long sum add up."""
    generator = torch.Generator().manual_seed(seed)

    def signs(like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint(2, like.shape, generator=generator, dtype=torch.int8) * 2 - 1
        return part(drawn.to(like.device, like.dtype), like)

    def errors(values: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        size = _root_mean_square(own_part(values))
        if not math.isfinite(size):
            known = values.isfinite()
            size = _root_mean_square(own_part(values)[own_part(known)].double())
            return torch.where(known & (values != 0), unit * directions * values.abs().clamp(min=size), 0)
        return unit * directions * values.abs().clamp(min=size) * (values != 0)

    def off_gradient(gradient: torch.Tensor) -> torch.Tensor:
        lean = int(torch.randint(2, (), generator=generator)) * 2 - 1
        return gradient + errors(gradient, signs(gradient) + lean)

    def off_output(value: Any) -> Any:
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return type(value)(map(off_output, value))
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        found = value + errors(value.detach(), signs(value))
        if found.requires_grad:
            found.register_hook(off_gradient)
        return found

    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + unit * signs(weight))
    generator.manual_seed(seed + 1 + rank)
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _module, _inputs, output: off_output(output))


def _root_mean_square(values: torch.Tensor) -> float:
    wide = torch.promote_types(values.dtype, torch.float32)
    return float(torch.linalg.vector_norm(values, dtype=wide)) / math.sqrt(max(1, values.numel()))


def numerics(double: bool) -> AbstractContextManager[Any]:
    """Numerics in which a task is trained."""
    return _in_float64() if double else _as_they_are()


@contextmanager
def _as_they_are() -> Iterator[None]:
    yield


@contextmanager
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)
