"""Dispatch-level accounting of a training step: FLOP by part of the model, live and peak memory by kind."""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from train_bench.dry_run.attention import ATTENTION_FORMULAS
from train_bench.dry_run.gathering import Gathering
from train_bench.dry_run.grouped import GROUPED_FORMULAS
from train_bench.dry_run.lstm import LSTM_FORMULAS, workspace

PART = "part of the model"
"""Metadata key of a graph node's part."""

OUTSIDE = "outside the parts"
"""Part name of everything outside the parts: losses, and computation between them."""

FORMULAS = {**flop_registry, **LSTM_FORMULAS, **ATTENTION_FORMULAS, **GROUPED_FORMULAS}


OperatorCallback = Callable[[str, Any, Any, Any], object]


class Watch(TorchDispatchMode):
    """Active from before a model is built until its steps have run.

    flop         by phase and part, a multiply-add is two
    alive        live bytes by kind
    peak         the same at their maximum since `forget_peak`
    peak_phase   phase of the peak
    part         bytes of this rank's shard of a tensor of a kind; None: it holds all
    gathering    weights and gradients that are whole for a time; a cast of one of its `casts` is the gathered weight
    on_operator  is called with each operator: phase, operator, arguments
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flop: dict[tuple[str, str], int] = defaultdict(int)
        self.alive: dict[str, int] = defaultdict(int)
        self.on_operator: OperatorCallback | None = None
        self.part: Callable[[Tensor, str], int] | None = None
        self.gathering: Gathering | None = None
        self._phase, self._part = "build", OUTSIDE
        self._known: dict[int, tuple[weakref.ref[Any], int, str]] = {}
        self._sparse: list[Any] = []
        self.forget_peak()

    def forget_peak(self) -> None:
        """Reset the peak."""
        self.peak, self.peak_phase = dict(self.alive), self._phase
        self._most = self._total = sum(self.alive.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.on_operator is not None:
            self.on_operator(self._phase, func, args, kwargs)
        if func is torch.ops.aten._local_scalar_dense.default and self._phase == "build":
            return 0.0  # start weights have no values, so random numbers are not used
        if func.overloadpacket is torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors:
            self._hold_sparse((args, kwargs))
        if func.overloadpacket is torch.ops.aten._embedding_bag_backward and args[9]:
            self._hold_sparse(_rows_of_lookups(*args[:2]))
        result = func(*args, **kwargs)
        if func.overloadpacket is torch.ops.aten.mkldnn_rnn_layer:
            steps, samples, inputs = args[0].shape
            kept = torch.empty(workspace(steps, samples, inputs, args[2].shape[1]), dtype=torch.uint8)
            result = (*result[:3], kept)
        formula = FORMULAS.get(func.overloadpacket)
        if formula is not None:
            node = torch._C._current_autograd_node()
            part = self._part if node is None else metadata_of(node).get(PART, OUTSIDE)
            phase = (
                self._phase if node is None else "backward"
            )  # also of gradients that a loss makes with itself
            self.flop[phase, part] += formula(*args, **kwargs, out_val=result)
        casts = () if self.gathering is None else self.gathering.casts
        if func is torch.ops.aten._to_copy.default and args[0].untyped_storage()._cdata in casts:
            self._begin(result.untyped_storage(), "gathered", 0)
        self._see(result)
        return result

    def _hold_sparse(self, components: Any) -> None:
        """Keep the components of a sparse gradient until the update: a sparse meta tensor does not."""
        self._sparse.append(components)
        self.name(tree_leaves(components), "gradients", of="temporary")

    def _see(self, result: Any) -> None:
        for tensor in tree_leaves(result):
            if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                self._begin(storage, "temporary")
        self._note()

    def _note(self) -> None:
        if self._total > self._most:
            self._most, self.peak, self.peak_phase = self._total, dict(self.alive), self._phase

    def _begin(self, storage: Any, kind: str, size: int | None = None) -> None:
        key, size = storage._cdata, storage.nbytes() if size is None else size
        self._known[key] = (weakref.ref(storage, lambda _: self._end(key)), size, kind)
        self.alive[kind] += size
        self._total += size

    def _end(self, key: int) -> None:
        _, size, kind = self._known.pop(key)
        self.alive[kind] -= size
        self._total -= size

    def name(self, values: Any, kind: str, *, of: str | None = None) -> None:
        """Set the kind of these tensors' memory; with `of`, only of memory of that kind."""
        for tensor in tree_leaves(values):
            if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                self._begin(storage, kind)
            reference, size, before = self._known[storage._cdata]
            if of is None or before == of:
                held = size if self.part is None else self.part(tensor, kind)
                self._known[storage._cdata] = (reference, held, kind)
                self.alive[before] -= size
                self.alive[kind] += held
                self._total += held - size

    def hold(self, size: int, kind: str) -> None:
        """Add bytes of a kind, for tensors that a dry run does not allocate."""
        self.alive[kind] += size
        self._total += size
        self._note()

    def name_all(self, before: str, kind: str) -> None:
        """Change the kind of all live memory of one kind."""
        for key, (reference, size, old) in self._known.items():
            if old == before:
                self._known[key] = (reference, size, kind)
        self.alive[kind] += self.alive.pop(before, 0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context: phase of the step. Memory that a forward pass leaves to the backward pass is its activations."""
        if name == "backward":
            self.name_all("temporary", "activations")
            self.activations = self.alive["activations"]
        before, self._phase = self._phase, name
        if name == "update":
            self.gradients = self.alive["gradients"]
        gathering = self.gathering if name in ("forward", "backward") else None  # the second within the first
        if gathering is not None:
            gathering.begin()
        yield
        if gathering is not None:
            gathering.end()
        self._phase = before
        if name == "update":
            self._sparse.clear()

    def follow(self, model: nn.Module) -> None:
        """Assign parts by the outermost called submodules; weight gradients count as gradients once they exist."""
        for name, module in model.named_modules():
            if module is not model:
                module.register_forward_pre_hook(self._enter(part_of(name)), with_kwargs=True)
                module.register_forward_hook(self._leave, always_call=True)
        for weight in model.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(self._take_gradient)
        self._depth = 0

    def _take_gradient(self, weight: Tensor) -> None:
        self.name(weight.grad, "gradients")
        if self.gathering is not None:
            self.gathering.gradient(weight)

    def _enter(self, part: str) -> Any:
        def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._depth == 0:
                self._part = part
                mark(tree_leaves((args, kwargs)), OUTSIDE)
            self._depth += 1

        return enter

    def _leave(self, _module: nn.Module, _args: Any, result: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            mark(tree_leaves(result), self._part)
            self._part = OUTSIDE


def _rows_of_lookups(gradient: Tensor, indices: Tensor) -> Tensor:
    """Values of the sparse gradient of an embedding bag, whose kernel makes them unseen: a row of the table for each
    row that was looked up."""
    return gradient.new_empty(len(indices), gradient.shape[1])


def part_of(name: str) -> str:
    """Part of a module; the layers of a list are one part."""
    return re.sub(r"\.\d+$", "", name)


def mark(tensors: list[Any], part: str) -> None:
    """Assign the nodes from these tensors back to the known ones to a part."""
    nodes = [
        tensor.grad_fn for tensor in tensors if isinstance(tensor, Tensor) and tensor.grad_fn is not None
    ]
    while nodes:
        node = nodes.pop()
        metadata = metadata_of(node)
        if PART not in metadata:
            metadata[PART] = part
            nodes += [following for following, _ in node.next_functions if following is not None]


def metadata_of(node: Any) -> dict[str, str]:
    """Metadata of a graph node; torch declares it as a method."""
    noted: dict[str, str] = node.metadata
    return noted
