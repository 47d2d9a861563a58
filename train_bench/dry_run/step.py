"""Dry run of one full-size training step on meta tensors: FLOP, memory and communication."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from train_bench.core.job import Device, Precision
from train_bench.dry_run.attention import attention_of
from train_bench.dry_run.batch import grown, tensors_of
from train_bench.dry_run.gathering import Gathering
from train_bench.dry_run.parallel import AUTOCAST, DryParallel
from train_bench.dry_run.watch import OUTSIDE, OperatorCallback, Watch
from train_bench.errors import RequestError
from train_bench.task import BenchmarkConfig

MICRO_BATCHES = 2
"""Micro-batches of an accumulation that are traced; the others repeat the second."""

START_WEIGHTS = "start_weights"
"""Configuration field, at any level, that names a file of weights: none is read."""

KINDS = ("weights", "gradients", "optimizer", "besides", "inputs", "activations", "gathered", "temporary")

NOT_EXCHANGED = {
    "copy": "What ranks send to gather weights for a layer is not counted.",
    "together": "What ranks that divide matrices send of activations is not counted.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Cost of a step of one rank: bytes, and FLOP per sample, with a multiply-add as two.

    device         device of the kernels; it determines the memory between forward and backward pass
    samples        of a micro-batch of this rank
    trainable, frozen  parameters that this rank holds
    flop           by part of the model, forward and backward
    together       ranks that compute the same samples together
    divided        kinds of which this rank holds only its shard
    memory         by kind: weights (with buffers), gradients, optimizer state, other state of the benchmark
                   between steps, inputs, activations, which a forward pass leaves for the backward pass, and
                   gathered weights of the layers that compute, with their gradients
    peak           by the same kinds and temporary memory, at the maximum of their sum
    peak_phase     phase of the peak: forward, backward or update
    undivided      bytes while sharded weights are whole on each rank: once they are built, plus the shards that
                   replace them; with `weights` in `divided` in an evaluation, too, plus the optimizer state. 0 if they
                   are not sharded, or built in shards
    sharing        ranks that share a copy of the weights by FSDP2, which reduces gradients to shards; 1: none do
    gathers        bytes of weights in the all-gathers of a step
    reduced        bytes of gradients in the reductions of a step
    exchanged      bytes that this rank sends in all-to-alls, over all micro-batches of a step
    padded         whether samples are padded, here all to the longest possible
    real_flop      FLOP of a sample without padding, if `real_share` is given
    notes          omissions of the numbers, in sentences
    """

    device: str
    precision: str
    ranks: int
    rank: int
    together: int
    divided: tuple[str, ...]
    samples: int
    micro_batches: int
    global_batch_size: int
    trainable: int
    frozen: int
    flop: Mapping[str, tuple[float, float]]
    padded: bool
    real_flop: float | None
    memory: Mapping[str, int]
    peak: Mapping[str, int]
    peak_phase: str
    undivided: int
    sharing: int
    gathers: int
    reduced: int
    exchanged: int
    notes: tuple[str, ...]

    @property
    def flop_per_sample(self) -> float:
        """Forward and backward, padding included."""
        return sum(forward + backward for forward, backward in self.flop.values())


def step_of(
    make: Callable[[Any], Any],
    config: BenchmarkConfig,
    *,
    ranks: int,
    device: Device,
    precision: Precision,
    together: int = 1,
    divided: tuple[str, ...] = (),
    sharing: int | None = None,
    reduces_cast: bool = False,
    real_share: float | None = None,
    on_operator: OperatorCallback | None = None,
) -> Step:
    """Trace a step of `make`'s task as one of `ranks` ranks; of ranks with different parameters, the one that holds the
    most. `together`, `divided`, `sharing` and `reduces_cast` are the launcher's (`LauncherConfig`). `real_share` is the
    unpadded part of a sample; `on_operator` is called with each operator of a step of at most `MICRO_BATCHES`
    micro-batches.

    Raises `RequestError` for a task that does not describe its batches, or whose step depends on values.
    """
    kernels = Device.cuda if device is Device.cuda else Device.cpu
    data_ranks = ranks // together
    config, micro_batches = _without_files(config.for_ranks(ranks), data_ranks)
    samples = config.hyperparameters.global_batch_size // (
        data_ranks * config.hyperparameters.gradient_accumulation_steps
    )
    watch = Watch()
    with _no_memory(config.benchmark), watch, _exchanges() as exchanges, attention_of(kernels):
        rank = _largest_rank(make, config, ranks)
        shards = (sharing or ranks) // together
        by_fsdp = "weights" in divided and "copy" not in divided and shards > 1
        cast = by_fsdp and config.BUILT_IN_SHARDS and precision in AUTOCAST
        task, parallel = _built(
            make, config, rank, ranks, kernels, precision, watch, together=together, casts=cast
        )
        watch.hold(_device_sets(task, kernels), "besides")
        _divide(watch, parallel, divided, shards, cast=cast, reduces_cast=reduces_cast)
        watch.name((list(parallel.model.parameters()), list(parallel.model.buffers())), "weights")
        watch.name_all("temporary", "besides")
        watch.follow(parallel.model)
        batch = _batch(task, samples)
        watch.name(list(tensors_of(batch)), "inputs")
        gathering = watch.gathering if by_fsdp else None
        reduced = _reduced(parallel) if gathering is None else gathering.reduced
        if gathering is not None and "gradients" in divided:
            reduced *= micro_batches
        with watch.phase("between"):
            task.iterate(batch)
        _name_state(watch, parallel.optimizer)
        watch.flop.clear()
        watch.forget_peak()
        exchanges.clear()
        watch.on_operator = on_operator
        with watch.phase("between"):
            task.iterate(batch)
        watch.on_operator = None
        flop, peak, peak_phase = dict(watch.flop), watch.peak, watch.peak_phase
        gradients = watch.gradients
        memory = {kind: watch.alive.get(kind, 0) for kind in KINDS}
        memory |= {"gradients": gradients, "activations": watch.activations}
        exchanged = sum(exchanges) // config.hyperparameters.gradient_accumulation_steps * micro_batches
        real_flop = _real_flop(task, watch, samples, real_share)
    trained = config.hyperparameters.gradient_accumulation_steps * samples
    weights = list(parallel.model.parameters())
    return Step(
        device=kernels.value,
        precision=precision.value,
        ranks=ranks,
        rank=rank,
        together=together,
        divided=divided,
        samples=samples,
        micro_batches=micro_batches,
        global_batch_size=samples * data_ranks * micro_batches,
        trainable=sum(weight.numel() for weight in weights if weight.requires_grad),
        frozen=sum(weight.numel() for weight in weights if not weight.requires_grad),
        flop=_by_part(flop, trained),
        padded=_pads(task),
        real_flop=None if real_flop is None else real_flop / trained,
        memory={kind: size for kind, size in memory.items() if kind != "temporary"},
        peak={kind: peak.get(kind, 0) for kind in KINDS},
        peak_phase=peak_phase,
        undivided=_undivided(parallel, memory, divided, in_shards=config.BUILT_IN_SHARDS),
        sharing=shards if by_fsdp else 1,
        gathers=2 * micro_batches * gathering.gathered if gathering is not None else 0,
        reduced=reduced if data_ranks > 1 else 0,
        exchanged=exchanged,
        notes=(
            *(task.dry_notes() if hasattr(task, "dry_notes") else ()),
            *([NOT_EXCHANGED["copy"]] if {"weights", "copy"} <= set(divided) else []),
            *([NOT_EXCHANGED["together"]] if together > 1 else []),
        ),
    )


def bytes_of_batch(
    make: Callable[[Any], Any], config: BenchmarkConfig, samples: int, *, ranks: int, together: int = 1
) -> int:
    """Bytes of a synthetic batch of `make`'s task on one of `ranks` ranks."""
    config, _ = _without_files(config.for_ranks(ranks), ranks // together)
    watch, cpu, full = Watch(), Device.cpu, Precision.fp32
    with _no_memory(config.benchmark), watch:
        task, _ = _built(make, config, 0, ranks, cpu, full, watch, together=together)
        return sum(one.numel() * one.element_size() for one in tensors_of(_batch(task, samples)))


def _built(
    make: Callable[[Any], Any],
    config: BenchmarkConfig,
    rank: int,
    ranks: int,
    kernels: Device,
    precision: Precision,
    watch: Watch,
    *,
    together: int = 1,
    casts: bool = False,
) -> tuple[Any, DryParallel]:
    task = make(config)
    for needed in ("synthetic", "iterate"):
        if not hasattr(task, needed):
            raise RequestError(
                f"{config.benchmark} cannot be planned dry, because its Task has no {needed}(); DryTask in "
                "train_bench/task.py says what a dry run asks for."
            )
    parallel = DryParallel(
        rank=rank,
        size=ranks,
        together=together,
        kernels=kernels,
        precision=precision,
        casts=casts,
        phase=watch.phase,
    )
    task.build(1, parallel)
    return task, parallel


def _divide(
    watch: Watch,
    parallel: DryParallel,
    divided: tuple[str, ...],
    ranks: int,
    *,
    cast: bool,
    reduces_cast: bool,
) -> None:
    """Have `watch` count shards, of so many ranks, and with `cast` gather in the numerics of the job what layers cast.
    Of rows that do not divide evenly the first rank has the most."""
    model = parallel.model

    def part(tensor: Tensor, kind: str) -> int:
        size = tensor.untyped_storage().nbytes()
        if kind not in divided or not tensor.dim() or not tensor.numel():
            return size
        if kind == "weights" and not isinstance(tensor, torch.nn.Parameter):
            return size  # a buffer
        return size // len(tensor) * -(-len(tensor) // ranks)

    watch.part = part
    if "copy" in divided:
        watch.hold(
            sum(part(one, "optimizer") for one in model.parameters() if one.requires_grad), "optimizer"
        )
    if "weights" in divided and ranks > 1:
        watch.gathering = Gathering(
            model,
            lambda size: watch.hold(size, "gathered"),
            cast=cast,
            reduces_cast=cast and reduces_cast,
            in_shards="gradients" in divided,
        )


def _undivided(
    parallel: DryParallel, memory: Mapping[str, int], divided: tuple[str, ...], *, in_shards: bool
) -> int:
    if in_shards and "copy" not in divided:
        return 0
    if "weights" in divided and parallel.size > 1:
        return parallel.built + memory["weights"] + memory["optimizer"]
    return parallel.built if parallel.together > 1 else 0


def _reduced(parallel: DryParallel) -> int:
    """Bytes of gradients that ranks average."""
    trained = (one for one in parallel.model.parameters() if one.requires_grad)
    return sum(one.numel() * one.element_size() for one in trained if id(one) not in parallel.local)


def _device_sets(task: Any, kernels: Device) -> int:
    """Bytes of data sets that the device of these kernels holds."""
    if kernels is Device.cpu or not hasattr(task, "device_sets"):
        return 0
    with _disable_current_modes():
        return int(task.device_sets())


def _largest_rank(make: Callable[[Any], Any], config: BenchmarkConfig, ranks: int) -> int:
    """Rank with the most parameters; the first if all hold the same."""
    if not config.SHARDED:
        return 0
    held = []
    for rank in range(ranks):
        _, parallel = _built(make, config, rank, ranks, Device.cpu, Precision.fp32, Watch())
        held.append(sum(weight.numel() for weight in parallel.model.parameters()))
    return held.index(max(held))


def _without_files(config: BenchmarkConfig, ranks: int) -> tuple[BenchmarkConfig, int]:
    """Configuration with the fewest micro-batches that show accumulation, and their real number; without options that
    read files or compile."""
    hyperparameters = config.hyperparameters
    micro_batches = hyperparameters.gradient_accumulation_steps
    if hyperparameters.global_batch_size % (ranks * micro_batches):
        share, rest = divmod(hyperparameters.global_batch_size, micro_batches)
        step = (
            "Set benchmark.hyperparameters.gradient_accumulation_steps to a number that divides the batch"
            if rest
            else f"Take ranks that divide {share}"
        )
        raise RequestError(
            f"A global batch of {hyperparameters.global_batch_size} cannot be divided among {ranks} ranks x "
            f"{micro_batches} micro-batches. {step}, or take a point= with a larger batch."
        )
    local = hyperparameters.global_batch_size // (ranks * micro_batches)
    few = min(micro_batches, MICRO_BATCHES)
    hyperparameters = replace(
        hyperparameters, global_batch_size=local * few * ranks, gradient_accumulation_steps=few
    )
    changes: dict[str, Any] = {"hyperparameters": hyperparameters, "compile": False}
    if "warm_up_steps" in {field.name for field in fields(config)}:
        changes["warm_up_steps"] = 0
    changed: BenchmarkConfig = restart_iterator(replace(config, **changes))
    return changed, micro_batches


def restart_iterator(value: Any) -> Any:
    """Copy of a configuration, or part of one, whose network starts from random weights instead of a file."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {
        field.name: None if field.name == START_WEIGHTS else restart_iterator(getattr(value, field.name))
        for field in fields(value)
        if field.init
    }
    return replace(value, **changes)


@contextmanager
def _no_memory(benchmark: str) -> Iterator[None]:
    """Context: meta tensors, with shapes and without values, on any device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about kernels that a machine without a GPU lacks
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        known = mode.fake_tensor_converter.meta_converter.tensor_memo
        swap: Any = torch.utils.swap_tensors

        def swap_unknown(one: Tensor, other: Tensor) -> None:
            """Swap as torch does when it moves a model, which refuses tensors with live references."""
            if (one.device, one.stride()) != (other.device, other.stride()):
                known.clear()
                swap(one, other)

        try:
            with mode, patch.object(torch.utils, "swap_tensors", swap_unknown):
                yield
        except DataDependentOutputException as error:
            raise RequestError(
                f"{benchmark} cannot be planned dry: its step looks at the values of tensors ({error.func}), and "
                "tensors without memory have none."
            ) from error


@contextmanager
def _exchanges() -> Iterator[list[int]]:
    """Bytes that this rank sends in each all-to-all; nothing is sent."""
    sent: list[int] = []

    def all_to_all(_into: Tensor, source: Tensor, *_: Any, **__: Any) -> None:
        sent.append(source.numel() * source.element_size())

    with patch.object(torch.distributed, "all_to_all_single", all_to_all):
        yield sent


def _batch(task: Any, samples: int, **how: Any) -> Any:
    """A synthetic micro-batch of meta tensors. The two small batches behind it are made with values, because drawing
    them may need values."""
    with _disable_current_modes():
        one, two = task.synthetic(1, **how), task.synthetic(2, **how)
    return grown(one, two, samples)


def _name_state(watch: Watch, optimizer: torch.optim.Optimizer) -> None:
    for state in optimizer.state.values():
        watch.name(list(state.values()), "optimizer")


def _pads(task: Any) -> bool:
    return "share" in inspect.signature(task.synthetic).parameters


def _real_flop(task: Any, watch: Watch, samples: int, share: float | None) -> float | None:
    """FLOP of an iteration without padding."""
    if share is None:
        return None
    if not _pads(task):
        raise RequestError(f"{task.config.benchmark} pads no samples; leave --real-share out.")
    batch = _batch(task, samples, share=share)
    watch.flop.clear()
    task.iterate(batch)
    return float(sum(watch.flop.values()))


def _by_part(flop: Mapping[tuple[str, str], int], samples: int) -> dict[str, tuple[float, float]]:
    """Forward and backward FLOP of a sample, by part in the order in which they are computed."""
    parts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (phase, part), count in flop.items():
        parts[part][phase == "backward"] += count / samples
    return {
        part: (forward, backward)
        for part, (forward, backward) in sorted(parts.items(), key=lambda item: item[0] == OUTSIDE)
    }
