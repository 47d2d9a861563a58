"""Operator benchmarks: the unique operators of a step, by signature (shapes, layouts, types, parameters), each measured
alone. Operators are recorded below autograd, so forward and backward passes of layers and optimizer updates are alike,
and one that two models share is measured once.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from train_bench.profile.classes import class_of

WITHOUT_TIME = ("views, allocation", "communication", "synchronisation")
"""Classes whose operators compute nothing."""

SECONDS, CALLS, LEAST_CALLS = 0.02, 50, 4
"""An operator is called until either limit is reached, and at least so often."""

CALLS_IN_A_STEP, BETWEEN_BYTES = 6, 2**20
"""Calls of an operator under the conditions of a step, if they take less than `SECONDS`; before each, so many bytes
pass through the caches."""

CACHE_BYTES, COPIES = 2**26, 8
"""Upper bounds of cache size, and of copies of small values."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Signature of a tensor: its shape, stride and type without values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}/{list(self.stride)}"


@dataclass(frozen=True, slots=True)
class Brick:
    """An operator and the signature of its arguments. `library` says whether oneDNN may be used."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    library: bool = True

    @property
    def kind(self) -> str:
        """Operator class."""
        return class_of(self.operator.overloadpacket.__name__)

    @property
    def key(self) -> str:
        """Unique key. All fractional numbers are alike: rates change with each step."""
        spelled = tree_map(_spelled, (self.args, dict(self.kwargs)))
        return f"{self.operator} {spelled}{'' if self.library else ' without oneDNN'}"

    @property
    def bytes(self) -> int:
        """Bytes of all arguments."""
        given = [one for one in tree_leaves((self.args, dict(self.kwargs))) if isinstance(one, TensorSpec)]
        return sum(math.prod(one.shape) * one.dtype.itemsize for one in given)

    def with_spec(self, change: Callable[[TensorSpec], TensorSpec]) -> Brick:
        """Copy with other tensor signatures."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, TensorSpec) else value

        return replace(self, args=tree_map(changed, self.args), kwargs=tree_map(changed, dict(self.kwargs)))


NOTHING = Brick(torch.ops.aten.alias.default, (TensorSpec((1,), (1,), torch.float32),), {})
"""Overhead of any call."""


def _spelled(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return repr(value)


class CallRecorder:
    """Recorder of a step's operators: calls of each by module and phase. `operators` also counts those that compute
    nothing."""

    def __init__(self) -> None:
        self.operators: Counter[str] = Counter()
        self.bricks: dict[str, Brick] = {}
        self.of: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def add(self, owner: str, phase: str, operator: Any, args: Any, kwargs: Any) -> str | None:
        """Count a call; calls of the profiler and of meta tensors are ignored. Returns the operator's key, or None if
        it computes nothing."""
        if operator.namespace in ("prim", "profiler"):
            return None
        self.operators[phase] += 1
        if class_of(operator.overloadpacket.__name__) in WITHOUT_TIME:
            return None
        brick = Brick(operator, *tree_map(_without_values, (tuple(args), dict(kwargs or {}))))
        key = brick.key
        self.bricks.setdefault(key, brick)
        self.of[owner, phase][key] += 1
        return key


def _without_values(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.layout is not torch.strided:
        return str(value.layout)
    return TensorSpec(tuple(value.shape), value.stride(), value.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of a call: the fastest of each half of the calls in a row."""

    fastest: tuple[float, float]

    @property
    def least(self) -> float:
        """Seconds of the undisturbed call."""
        return min(self.fastest)


def measure(brick: Brick, device: torch.device) -> Measured | None:
    """Benchmark an operator on random values; None if it cannot be called."""
    with _callable(brick, device) as called:
        if called is None:
            return None
        times: list[float] = []
        until = time.perf_counter() + SECONDS
        while len(times) < LEAST_CALLS or (time.perf_counter() < until and len(times) < CALLS):
            times.append(called())
    half = len(times) // 2
    return Measured(fastest=(min(times[:half]), min(times[half:])))


def measure_in_a_step(brick: Brick, device: torch.device, copies: int) -> float | None:
    """Seconds of a call under the conditions of a step: the median of some calls that cycle through `copies` of its
    values (`copies_of`); None if it cannot be called."""
    with _callable(brick, device, copies, kept=copies) as called:
        if called is None:
            return None
        passing = torch.zeros(BETWEEN_BYTES // 4, device=device)
        times: list[float] = []
        while sum(times) < SECONDS and len(times) < CALLS_IN_A_STEP:
            passing.add_(1.0)
            times.append(called())
    return statistics.median(times)


def copies_of(brick: Brick, footprint: int, calls: float) -> int:
    """Number of copies of an operator's values that fill the caches as a step of `footprint` bytes does between two of
    its calls: its code is cached, and its values have left the caches as far as they have in the step."""
    passing = min(footprint / calls, CACHE_BYTES)
    return max(1, min(COPIES, round(passing / max(1, brick.bytes))))


@contextmanager
def _callable(
    brick: Brick, device: torch.device, copies: int = 1, kept: int = 0
) -> Iterator[Callable[[], float] | None]:
    """Context: a timed call that cycles through the copies of its values and returns seconds. The last `kept` results
    stay allocated, so that the next one is written to memory as cold as the values."""
    with torch.no_grad(), _library(brick.library):
        try:
            values = cycle([_with_values(brick, device) for _ in range(copies)])
            args, kwargs = next(values)
            brick.operator(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            yield None
            return

        returned: deque[Any] = deque(maxlen=kept)

        def called() -> float:
            args, kwargs = next(values)
            _wait(device)
            began = time.perf_counter()
            answer = brick.operator(*args, **kwargs)
            _wait(device)
            took = time.perf_counter() - began
            returned.append(answer)
            return took

        yield called


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _library(enabled: bool) -> Iterator[None]:
    """Context: oneDNN on or off."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(before and enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _with_values(brick: Brick, device: torch.device) -> Any:
    many = _values(brick)

    def made(value: Any) -> Any:
        if not isinstance(value, TensorSpec):
            return value
        size = 1 + sum((side - 1) * step for side, step in zip(value.shape, value.stride, strict=True))
        memory = torch.empty(size if all(value.shape) else 0, dtype=value.dtype, device=device)
        if value.dtype.is_floating_point:
            memory.uniform_(0.5, 1.5)
        elif value.dtype is torch.bool:
            memory.bernoulli_(0.5)
        else:
            memory.random_(0, min(many, torch.iinfo(value.dtype).max))
        return memory.as_strided(value.shape, value.stride)

    args, kwargs = tree_map(made, (brick.args, dict(brick.kwargs)))
    if brick.operator.overloadpacket.__name__ == "_embedding_bag":  # each bag has as many indices
        offsets = args[2]
        torch.arange(len(offsets), out=offsets).mul_(len(args[1]) // max(1, len(offsets)))
    return args, kwargs


def _values(brick: Brick) -> int:
    """Range of index values; 1 if the indexed dimension is not known."""
    name, args = brick.operator.overloadpacket.__name__.removesuffix("_"), brick.args
    if name == "embedding_dense_backward":
        return int(args[2])
    if name in ("embedding", "_embedding_bag"):
        return int(args[0].shape[0])
    if name.startswith("nll_loss"):  # classes are the second dimension of a batch
        shape = args[name.endswith("backward")].shape
        return int(shape[min(1, len(shape) - 1)])
    if name in ("gather", "scatter", "scatter_add", "index_select") and args[0].shape:
        return int(args[0].shape[args[1]])
    if name in ("index", "index_put", "_unsafe_index"):
        return min(args[0].shape, default=1)
    return 1
