"""Models whose starts are measured: a reference with the weights of a campaign, or a stack of linear layers.

Both have `build`, `weights` and `answer`. An answer is the sha256 of the outputs for the first batch, bit by bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import torch

from train_bench.check.one_rank import OneRank
from train_bench.core import cores
from train_bench.core.job import read_job
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel
from train_bench.run import rank, weights
from train_bench.seeds import derive
from train_bench.startup.mapping import map_tensors
from train_bench.startup.synthetic import WIDTH
from train_bench.task import ExportsWeights

ROWS = 8
"""Samples in the batch of a synthetic model."""


class Model(Protocol):
    """A model on this process's CPU, in fp32."""

    def build(self) -> None:
        """The model with its start weights, ready to answer."""

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Tensors that the answer depends on, which can be written into."""

    def modules(self) -> Iterator[torch.nn.Module]:
        """Modules that hold these tensors."""

    def answer(self) -> str:
        """sha256 of the outputs for the first batch."""


class SyntheticModel:
    """Linear layers of 1 MiB with a ReLU each, without biases; one batch from the seed. One thread computes it: others
    would wait for memory, and on a busy machine for each other."""

    def __init__(self, *, layers: int, seed: int) -> None:
        self.layers, self.seed = layers, seed

    def build(self) -> None:
        """Layers whose memory is not written yet."""
        torch.set_num_threads(1)
        self.model = torch.nn.ParameterList(torch.empty(WIDTH, WIDTH) for _ in range(self.layers))
        drawn = torch.Generator().manual_seed(derive(self.seed, "batch"))
        self.batch = torch.randn(ROWS, WIDTH, generator=drawn)

    def draw(self) -> None:
        """Write weights of the seed into the layers, of a size that keeps that of the activations."""
        drawn = torch.Generator().manual_seed(derive(self.seed, "weights"))
        bound = math.sqrt(6 / WIDTH)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.uniform_(-bound, bound, generator=drawn)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The layers' matrices."""
        return self.model.state_dict()

    def modules(self) -> Iterator[torch.nn.Module]:
        """The layers."""
        return self.model.modules()

    def answer(self) -> str:
        """sha256 of the last layer's outputs."""
        activations = self.batch
        with torch.inference_mode():
            for weight in self.model:
                activations = torch.relu(torch.nn.functional.linear(activations, weight))
        return digest(activations)


class ReferenceModel:
    """Task of a job, alone on this CPU."""

    def __init__(self, plan: Path, index: int) -> None:
        self.job = read_job(plan, index)
        torch.set_num_threads(self.job.threads_per_rank or cores.usable_cores())
        if self.job.deterministic:
            torch.use_deterministic_algorithms(True)
        self.task = rank.new_task(self.job)

    def build(self) -> None:
        """The task, with its data open."""
        self.parallel = OneRank()
        self.task.build(self.job.seed, cast(Parallel, self.parallel))
        self.task.open_data()

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Tensors that `keep_weights=true` keeps."""
        return weights.require_export(self.task, self.job).weights()

    def modules(self) -> Iterator[torch.nn.Module]:
        """Modules that the task has as attributes, with those below them."""
        for value in vars(self.task).values():
            if isinstance(value, torch.nn.Module):
                yield from value.modules()

    def answer(self) -> str:
        """sha256 of the outputs of the first call of a module in `evaluate`, which ends there. Raises `LaunchError`
        where an evaluation calls none in this process."""
        try:
            with first_outputs(_stop):
                self.task.evaluate()
        except _Answered as answered:
            return digest(answered.outputs)
        raise LaunchError(
            f"The evaluation of {self.job.benchmark} calls no module of torch in its own process, so that it has no "
            f"first answer; measure another benchmark."
        )

    def quality(self) -> dict[str, float | None]:
        """Metrics of a whole evaluation, None for NaN or infinity."""
        metrics = self.task.evaluate().metrics
        return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def from_description(described: Mapping[str, Any]) -> Model:
    """The model of a description: `layers` and `seed`, or `plan` and `index`."""
    if "plan" in described:
        return ReferenceModel(Path(described["plan"]), described["index"])
    return SyntheticModel(layers=described["layers"], seed=described["seed"])


class Loader:
    """Weights of a built model: its start weights, copies of files, or mappings of files."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._start: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copy(self, paths: Sequence[Path]) -> dict[str, int]:
        """Copy the tensors of files into those of the model. Bytes that were `mapped` and `copied`."""
        weights.put_back(cast(ExportsWeights, self._model), paths)
        return {"mapped": 0, "copied": sum(map(_size, self._model.weights().values()))}

    def map(self, paths: Sequence[Path]) -> dict[str, int]:
        """Have the model's tensors lie in the files' pages; those with another layout, or that no module holds, are
        copied. Bytes of either kind. Raises `LaunchError` as `run/weights.py` does."""
        self.unload()
        held: dict[tuple[Any, ...], list[torch.Tensor]] = {}
        for module in self._model.modules():
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None and all(tensor is not one for one in held.get(_place(tensor), ())):
                    held.setdefault(_place(tensor), []).append(tensor)
        named = weights.distinct(self._model.weights())
        missing, sizes = set(named), {"mapped": 0, "copied": 0}
        for path in paths:
            for name, mapped in map_tensors(path).items():
                if name not in missing:
                    continue
                missing.discard(name)
                mine = named[name]
                weights.refuse_other_shape(path, name, mapped, mine)
                alike = (mapped.stride(), mapped.dtype) == (mine.stride(), mine.dtype)
                holders = held.get(_place(mine), []) if alike and mine.numel() else []
                sizes["mapped" if holders else "copied"] += _size(mine)
                if not holders:
                    self._copied.append((mine, mine.clone()))
                    mine.copy_(mapped)
                for holder in holders:
                    self._start.append((holder, holder.data))
                    holder.data = mapped
        weights.refuse_missing(missing)
        return sizes

    def unload(self) -> None:
        """Take the model back to its start weights; mappings end."""
        for holder, data in self._start:
            holder.data = data
        for tensor, value in self._copied:
            tensor.copy_(value)
        self._start, self._copied = [], []


class _Answered(Exception):
    """The first outputs of an evaluation."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs


def _stop(outputs: Any) -> NoReturn:
    raise _Answered(outputs)


@contextmanager
def first_outputs(seen: Callable[[Any], None]) -> Iterator[None]:
    """Context in which `seen` is called with the outputs of the first module call that is inside no other."""
    depth = [0]
    done = [False]

    def enter(_module: torch.nn.Module, _inputs: Any) -> None:
        depth[0] += 1

    def leave(_module: torch.nn.Module, _inputs: Any, outputs: Any) -> None:
        depth[0] -= 1
        if depth[0] == 0 and not done[0]:
            done[0] = True
            seen(outputs)

    hooks = torch.nn.modules.module
    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def digest(outputs: Any) -> str:
    """sha256 of tensors in any nesting of lists, tuples and dictionaries: types, shapes and bytes."""
    made = hashlib.sha256()
    for tensor in _tensors(outputs):
        values = tensor.detach().cpu().contiguous()
        made.update(f"{values.dtype} {tuple(values.shape)} ".encode())
        made.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from _tensors(value)
    elif isinstance(outputs, list | tuple):
        for value in outputs:
            yield from _tensors(value)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
