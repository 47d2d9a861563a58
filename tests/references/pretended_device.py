"""A pretended GPU on which host waits and launches of a step are counted where there is none.

Tensors that a program moves to or makes on `DEVICE` are real CPU tensors that are known as the device's by a mark on
their storage; what is computed of them is the device's too. Seen are Python's calls (`to`, `cpu`, `tensor.device`) by a
`TorchFunctionMode`, and operators, those of the backward pass included, by a `TorchDispatchMode`.

A wait is what makes torch on CUDA stop the host until the device has come so far: a value that is read (`item`, `bool`,
`tolist`, `equal`), a result whose size depends on values (`nonzero`, boolean masks, `unique`, `coalesce`), a copy that
is not `non_blocking`, or whose host memory is not pinned: tensors from Python's values, indices from lists or the host.

Not seen are waits inside an operator's CUDA kernel, and code that asks for the type of the device, "cpu" here. A launch
is an operator on the device's tensors that gives no mere view; one of the CPU may be several kernels of a GPU.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("cpu", 1)
"""Tensors on it say that they are on "cpu", but moves to it can be told from moves to the host."""

ROOT = Path(__file__).resolve().parents[2]

READS = {"_local_scalar_dense", "is_nonzero", "equal", "allclose"}
SIZES = {
    *("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"),
    *("_coalesce", "to_sparse", "_to_sparse", "histc", "nms"),
}
MASKED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
FILLS = {"masked_fill", "masked_fill_", "index_fill", "index_fill_"}
"""They read a value that is a tensor, as does an assignment by a mask."""

NO_LAUNCH = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "set_"}


class Waits:
    """Waits and launches since the last `clear`.

    waits     by (operator, place in the code of references or launchers)
    launches  by operator
    """

    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()
        self.launches: Counter[str] = Counter()
        self.quiet = False

    def clear(self) -> None:
        """Count from 0."""
        self.waits.clear()
        self.launches.clear()

    def wait(self, what: str) -> None:
        self.waits[what, _place()] += 1


@contextmanager
def pretended() -> Iterator[Waits]:
    """Context in which `DEVICE` is a device."""
    found = Waits()
    with _Operators(found), _Calls(found):
        yield found


def on_device(tensor: Any) -> bool:
    """True for tensors on the pretended device."""
    return getattr(_storage(tensor), "pretended", False)


def pin(batch: Any) -> Any:
    """The batch as if a loader had pinned its memory."""
    for tensor in _tensors(batch):
        _storage(tensor).pinned = True
    return batch


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if is_dataclass(batch):
        for field in fields(batch):
            yield from _tensors(getattr(batch, field.name))
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _tensors(part)
    elif isinstance(batch, torch.Tensor):
        yield batch


def _storage(tensor: torch.Tensor) -> Any:
    """Storage of a tensor, a sparse one's values included. Python's object of it lives as long as it does, so that a
    mark stays, and all views share it."""
    with torch._C.DisableTorchFunction():
        return (tensor._values() if tensor.is_sparse else tensor).untyped_storage()


def _mark(tensor: torch.Tensor) -> torch.Tensor:
    _storage(tensor).pretended = True
    return tensor


def _asked_by_torch() -> bool:
    """True if a move is one of torch's own Python code, to the device that its operators tell: "cpu"."""
    return "torch" in Path(sys._getframe(3).f_code.co_filename).parts


def _is_device(place: Any) -> bool:
    return place is not None and torch.device(place) == DEVICE


def _place() -> str:
    """The innermost line of this repository's code that is no test."""
    frames = traceback.extract_stack()
    for frame in reversed(frames):
        file = Path(frame.filename).resolve()
        if file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / "tests"):
            inside = file.relative_to(ROOT)
            if inside.parts[0] in ("references", "launchers", "train_bench"):
                return f"{inside}:{frame.lineno} {frame.name}"
    return "elsewhere"


class _Calls(TorchFunctionMode):
    """Moves between host and device, which are none for a CPU's tensors."""

    def __init__(self, found: Waits) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        first = args[0] if args else None
        if function == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return DEVICE if on_device(first) else torch.device("cpu")
        name = getattr(function, "__name__", "")
        there = isinstance(first, torch.Tensor) and on_device(first)
        if name == "to" and isinstance(first, torch.Tensor):
            return self._to(first, args[1:], named)
        if name == "cpu":
            return self._moved(first, there, False, False, {})
        if name in ("tolist", "numpy", "__array__") and there:
            self._found.wait(name)
        if name in ("tensor", "as_tensor") and _is_device(named.get("device")):
            self._found.wait(f"{name} of host values")
            return _mark(function(*args, **(named | {"device": "cpu"})))
        if name == "new_tensor" and there:
            self._found.wait("new_tensor of host values")
            return _mark(function(*args, **named))
        if name in ("__getitem__", "__setitem__") and there:
            self._index(args[1])
        return function(*args, **named)

    def _to(self, tensor: torch.Tensor, args: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
        there = on_device(tensor)
        named = dict(named)
        copy = named.pop("copy", False)
        if args and isinstance(args[0], torch.Tensor):
            wanted, dtype, blocking, layout = on_device(args[0]), args[0].dtype, True, None
        else:
            device, dtype, free, layout = torch._C._nn._parse_to(*args, **named)
            stays = device is None or (there and _asked_by_torch())
            wanted, blocking = there if stays else _is_device(device), not free
        options: dict[str, Any] = {"dtype": dtype or tensor.dtype, "copy": copy}
        if layout is not None:
            options["memory_format"] = layout
        return self._moved(tensor, there, wanted, not blocking, options)

    def _moved(
        self, tensor: torch.Tensor, there: bool, wanted: bool, free: bool, options: dict[str, Any]
    ) -> torch.Tensor:
        if there == wanted:
            return tensor.to(**options) if options else tensor
        if wanted and not (free and getattr(_storage(tensor), "pinned", False)):
            self._found.wait("copy from pageable memory" if free else "blocking copy to the device")
        elif there and not free:
            self._found.wait("copy to the host")
        self._found.launches["copy between host and device"] += 1
        self._found.quiet = True
        try:
            moved = tensor.to(**(options | {"copy": True}))
        finally:
            self._found.quiet = False
        return _mark(moved) if wanted else moved

    def _index(self, key: Any) -> None:
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, (list, range)) or (
                isinstance(part, torch.Tensor) and part.dim() and not on_device(part)
            ):
                self._found.wait("indices from the host")


class _Operators(TorchDispatchMode):
    """Operators with a tensor of the device among their inputs, or that make one."""

    def __init__(self, found: Waits) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        tensors = [each for each in tree_leaves((args, named)) if isinstance(each, torch.Tensor)]
        there = any(map(on_device, tensors)) or _is_device(named.get("device"))
        results = function(*args, **named)
        if self._found.quiet or not there:
            return results
        name = function._schema.name.partition("::")[2]
        if name in READS | SIZES or (name == "repeat_interleave" and named.get("output_size") is None):
            self._found.wait(name)
        elif name in MASKED and any(
            each.dtype in (torch.bool, torch.uint8) for each in args[1] if each is not None
        ):
            self._found.wait(f"{name} by a mask")
        elif name in FILLS and isinstance(args[-1], torch.Tensor) and on_device(args[-1]):
            self._found.wait(f"{name} with a value of the device")
        elif name == "copy_" and on_device(args[0]) != on_device(args[1]):
            self._found.wait("copy_ between host and device")
            return results  # stays where it is
        for result in tree_leaves(results):
            if isinstance(result, torch.Tensor):
                _mark(result)
        if name not in NO_LAUNCH and not _is_view(function):
            self._found.launches[name] += 1
        return results


def _is_view(function: Any) -> bool:
    """True for operators whose result is another view of an input's memory, unchanged."""
    infos = [each.alias_info for each in function._schema.returns]
    return any(infos) and not any(info is not None and info.is_write for info in infos)
