"""Level 2: forward and backward time of every module by its qualified name, and its operators.

Hooks of modules time forward passes. For backward passes the autograd nodes that a module's forward pass added are
assigned to it before they run: the graph stays as it is, which torch's backward hooks would change. The time of the
hooks themselves is charged to nobody. On a GPU a module's time is that between events of the stream.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from train_bench.dry_run.watch import FORMULAS, metadata_of
from train_bench.profile.bricks import CallRecorder
from train_bench.profile.classes import UNKNOWN, class_of
from train_bench.profile.graph import Graph
from train_bench.profile.peak import Peak
from train_bench.profile.timeline import moment, seconds_between

OUTSIDE = ""
"""Name of everything outside the modules: losses, and computation around the model."""

MODEL = "(model)"
"""Name of the outermost module, which has none of its own."""

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""Nodes that outlive a step."""

MOST_SIGNATURES = 20


@dataclass(slots=True)
class Layer:
    """Seconds and calls of a module without its submodules."""

    forward: float = 0.0
    backward: float = 0.0
    calls: int = 0


@dataclass(slots=True)
class Content:
    """Computation of a module without its submodules: FLOP (a multiply-add is two), seconds of its operators at the
    measured peaks by phase and class, bytes of its outputs and of what it keeps for its backward pass, whether anything
    is in double precision, and calls by signature (its inputs).
    """

    flop: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ideal: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    output_bytes: int = 0
    saved_bytes: int = 0
    double: bool = False
    signatures: dict[str, dict[str, Any]] = field(default_factory=dict)


class Layers:
    """Hooks on a model, as long as they are installed. `content` gets calls and results while it is not None."""

    def __init__(self, model: nn.Module, device: torch.device, *, contents: Contents | None = None) -> None:
        self._layers: dict[str, Layer] = defaultdict(Layer)
        self._device = device
        self._stretches: list[tuple[str, str, Any, Any]] = []
        self._contents = contents
        self._stack: list[str] = []
        self._owner = OUTSIDE
        self._phase = ""
        self._since = moment(device)
        self._handles = []
        for name, module in model.named_modules():
            called = name or MODEL
            self._handles += [
                module.register_forward_pre_hook(self._enter(called), with_kwargs=True),
                module.register_forward_hook(self._leave(called), always_call=True),
            ]

    def measured(self) -> dict[str, Layer]:
        """Times and calls of each module so far."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        for phase, owner, began, ended in self._stretches:
            seconds = seconds_between(began, ended)
            if phase == "forward":
                self._layers[owner].forward += seconds
            else:
                self._layers[owner].backward += seconds
        self._stretches.clear()
        return self._layers

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def phase_begins(self, phase: str, loss: Tensor | None = None) -> None:
        """A backward pass begins with what is outside the model."""
        if self._contents is not None:
            self._contents.phase_begins()
        self._charge()
        if loss is not None:
            self._mark([loss], OUTSIDE)
        self._phase = phase
        self._become(OUTSIDE)

    def phase_ends(self, phase: str) -> None:
        """The work in progress belongs to nobody from here on."""
        self._charge()
        if phase == "backward" and self._contents is not None:
            self._contents.freed()
        self._phase = "forward" if phase == "backward" else ""
        self._become(OUTSIDE)
        if self._contents is not None:
            self._contents.phase_ends()

    def step_ended(self) -> None:
        """No-op."""

    def _charge(self) -> None:
        if self._phase in ("forward", "backward"):
            self._stretches.append((self._phase, self._owner, self._since, moment(self._device)))

    def _become(self, owner: str) -> None:
        self._owner = owner
        if self._contents is not None:
            self._contents.owner, self._contents.phase = owner, self._phase
        self._since = moment(self._device)

    def _enter(self, name: str) -> Any:
        def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._phase != "forward" or not torch.is_grad_enabled():
                return
            self._charge()
            self._mark(tree_leaves((args, kwargs)), self._stack[-1] if self._stack else OUTSIDE)
            self._stack.append(name)
            self._layers[name].calls += 1
            if self._contents is not None:
                self._contents.called(name, args, kwargs)
            self._become(name)

        return enter

    def _leave(self, name: str) -> Any:
        def leave(_module: nn.Module, _args: Any, result: Any) -> None:
            if not self._stack or self._stack[-1] != name:
                return
            self._charge()
            self._mark(tree_leaves(result), name)
            if self._contents is not None:
                self._contents.returned(name, result)
            self._stack.pop()
            self._become(self._stack[-1] if self._stack else OUTSIDE)

        return leave

    def _mark(self, tensors: list[Any], name: str) -> None:
        """Assign the nodes from these tensors back to the known ones to a module."""
        nodes = [one.grad_fn for one in tensors if isinstance(one, Tensor) and one.grad_fn is not None]
        while nodes:
            node = nodes.pop()
            metadata = metadata_of(node)
            if OWNER in metadata or node.name() == ACCUMULATE:
                continue
            metadata[OWNER] = name
            node.register_prehook(self._runs(name))
            nodes += [following for following, _ in node.next_functions if following is not None]

    def _runs(self, name: str) -> Any:
        def runs(_gradients: Any) -> None:
            if name != self._owner:
                self._charge()
                self._become(name)

        return runs


def _bytes(tensor: Tensor) -> int:
    """Bytes of a tensor: an expanded dimension counts once, and of larger memory only its own part."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _moved(kind: str, tensors: list[Tensor], result: Any) -> int:
    """Minimum bytes that an operator reads and writes: its whole tensors, but of a table no more than the rows looked
    up."""
    sizes = [_bytes(one) for one in tensors if one.layout is torch.strided]
    if kind == "embedding and index":
        found = [one.numel() * one.element_size() for one in tree_leaves(result) if isinstance(one, Tensor)]
        sizes = [min(size, max(found, default=0)) for size in sizes]
    return sum(sizes)


OWNER = "module"
"""Metadata key of a graph node's module."""


class Contents(TorchDispatchMode):
    """Operators of a few steps, recorded below autograd; such steps are not timed."""

    def __init__(self, peak: Peak, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.of: dict[str, Content] = defaultdict(Content)
        self.owner, self.phase = OUTSIDE, ""
        self.calls, self.graph = CallRecorder(), Graph()
        self.unknown: set[str] = set()
        self.backward_passes = 0
        self._peak = peak
        self._weights = {one.untyped_storage()._cdata for one in model.parameters()}
        self._saved: set[int] = set()
        self._depth = 0

    def phase_begins(self) -> None:
        """Operators between phases (self-play) are not recorded; a backward pass lies within a forward pass."""
        if self._depth == 0:
            self.__enter__()  # type: ignore[no-untyped-call]
        self._depth += 1

    def phase_ends(self) -> None:
        """The outermost phase is over."""
        self._depth -= 1
        if self._depth == 0:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def called(self, name: str, args: Any, kwargs: Any) -> None:
        """Record a module's call with its arguments."""
        inputs = [
            {
                "shape": list(one.shape),
                "dtype": str(one.dtype).removeprefix("torch."),
                "requires_grad": one.requires_grad,
            }
            for one in tree_leaves((args, kwargs))
            if isinstance(one, Tensor)
        ]
        known = self.of[name].signatures
        key = repr(inputs)
        if key in known:
            known[key]["calls"] += 1
        elif len(known) < MOST_SIGNATURES:
            known[key] = {"inputs": inputs, "calls": 1}

    def returned(self, name: str, result: Any) -> None:
        """Record a module's return with its result."""
        self.of[name].output_bytes += sum(
            one.numel() * one.element_size() for one in tree_leaves(result) if isinstance(one, Tensor)
        )

    def saved(self, tensor: Tensor) -> Tensor:
        """Autograd hook: a tensor is saved for the backward pass. A weight is kept anyway."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._saved | self._weights:
            self._saved.add(storage._cdata)
            self.of[self.owner].saved_bytes += _bytes(tensor)
        return tensor

    def freed(self) -> None:
        """After a backward pass nothing is saved any more, and other tensors take the same memory."""
        self.backward_passes += 1
        self._saved.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.phase:
            return result
        name = func.overloadpacket.__name__
        kind = class_of(name)
        brick = self.calls.add(self.owner, self.phase, func, args, kwargs)
        self.graph.add(self.phase, brick, func, (args, kwargs), result)
        if kind == UNKNOWN:
            self.unknown.add(name)
        content = self.of[self.owner]
        formula = FORMULAS.get(func.overloadpacket)
        seconds = 0.0
        if formula is not None:
            flop = float(formula(*args, **(kwargs or {}), out_val=result))
            content.flop[self.phase] += flop
            seconds = flop / self._peak.flop_per_second
        tensors = [one for one in tree_leaves((args, kwargs, result)) if isinstance(one, Tensor)]
        if kind != "views, allocation":
            seconds = max(seconds, self._peak.moving(_moved(kind, tensors, result)))
        content.double |= any(one.dtype is torch.float64 and one.dim() > 0 for one in tensors)
        content.ideal[self.phase, kind] += seconds
        return result
