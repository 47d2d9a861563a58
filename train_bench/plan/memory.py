"""Lower bound of a rank's device memory from numbers of parameters, without torch: weights, gradients and optimizer
state, and all weights where a rank holds them at once. Activations, inputs and buffers are what `plan --dry` adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from train_bench.core.job import Precision
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.task import BenchmarkConfig

STATES = {"adam": 2, "adamw": 2, "adagrad": 1}
"""Numbers that an optimizer keeps of each trained parameter, by `opt_name`; of others none is counted."""

FP32 = 4
"""Bytes of a trained parameter, of its gradient and of a number of its state."""

MOST_RANKS = 4096
"""Where the search for a change ends."""

RANKS_OF_A_HOST = 8

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))

CAST = 2
"""Bytes of a number in these numerics."""

CASTING = (Precision.bf16, Precision.fp16)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFloor:
    """Bytes that a rank needs at least.

    weights, gradients, optimizer  those that it holds in training
    whole  all weights, where it holds them beside its shard: once they are built, or in an evaluation; else 0
    """

    weights: int
    gradients: int
    optimizer: int
    whole: int

    @property
    def total(self) -> int:
        """At the larger of both moments."""
        return self.weights + self.optimizer + max(self.gradients, self.whole)

    @property
    def sentence(self) -> str:
        """The total and its parts in one unit, GB of 10^9 bytes or a smaller one."""
        if self.whole > self.gradients:
            parts = {
                "all weights at once": self.whole,
                "its shard": self.weights,
                "its optimizer state": self.optimizer,
            }
        else:
            parts = {"weights": self.weights, "gradients": self.gradients, "optimizer state": self.optimizer}
        unit, name = next((one for one in UNITS if self.total >= one[0]), UNITS[-1])
        listed = ", ".join(f"{part} {size / unit:.3g}" for part, size in parts.items() if size)
        return f"{self.total / unit:.3g} {name} ({listed})"


def memory_floor(
    benchmark: BenchmarkConfig, launcher: LauncherConfig, precision: Precision
) -> MemoryFloor | None:
    """Lower bound of the fullest rank; None for a benchmark that does not count its parameters."""
    sharing, together, divides = launcher.sharing, launcher.together, launcher.divides
    count = benchmark.parameter_count(launcher.world_size)
    if count is None:
        return None
    state = STATES.get(getattr(benchmark.hyperparameters, "opt_name", ""), 0)
    trained = FP32 * count.trained
    weights = trained + count.frozen_bytes * count.frozen
    shards = benchmark.BUILT_IN_SHARDS and "weights" in divides and "copy" not in divides
    if shards and precision in CASTING and sharing > together:
        weights -= (count.frozen_bytes - CAST) * count.frozen_cast

    def own(size: int, kind: str) -> int:
        return size // (sharing if kind in divides else together)

    held = own(weights, "weights")
    return MemoryFloor(
        weights=held + FP32 * count.local,
        gradients=own(trained, "gradients"),
        optimizer=own(state * trained, "optimizer")
        + FP32 * state * count.local
        + (trained // sharing if "copy" in divides else 0),
        whole=weights if held < weights and launcher.whole_weights(benchmark) else 0,
    )


def refuse_memory(
    benchmark: BenchmarkConfig,
    launcher: LauncherConfig,
    precision: Precision,
    device_bytes: int,
    device: str,
) -> str | None:
    """Reason that a rank cannot fit a device of so many bytes, which `device` names, with a change that would; None if
    the lower bound fits."""
    floor = memory_floor(benchmark, launcher, precision)
    if floor is None or floor.total <= device_bytes:
        return None
    found = next(_changes(benchmark, launcher, precision, device_bytes), None)
    if found is None:
        step = f"No sharding on up to {MOST_RANKS} ranks changes that; use a device with more memory."
    else:
        words, fitting = found
        step = f"Set {words}, which needs at least {fitting.total / 1e9:.3g} GB; `train-bench plan --dry` has the peak."
    return (
        f"{benchmark.benchmark} needs at least {floor.sentence} on the device of a rank, which has "
        f"{device_bytes / 1e9:.3g} GB ({device}). {step} Nothing was started."
    )


def _changes(
    benchmark: BenchmarkConfig, launcher: LauncherConfig, precision: Precision, device_bytes: int
) -> Iterator[tuple[str, MemoryFloor]]:
    """Overrides that would fit, and what they need at least: the fewest ranks first, by doubling."""
    tried: LauncherConfig = launcher
    if len(launcher.shardings) == 1:
        ranks = {"nodes": launcher.nodes, "nproc_per_node": launcher.nproc_per_node}
        tried = discover.launcher_config("torchrun")(name="torchrun", **ranks)
    while tried.world_size <= MOST_RANKS:
        for changes in tried.shardings:
            changed = replace(tried, **changes)
            if (
                changed.refuse_division(benchmark) is not None
                or benchmark.hyperparameters.global_batch_size % changed.data_ranks
            ):
                continue
            floor = memory_floor(benchmark, changed, precision)
            if floor is not None and floor.total <= device_bytes:
                yield _typed(launcher, changed), floor
        tried = _doubled(tried)


def _doubled(launcher: LauncherConfig) -> LauncherConfig:
    if launcher.nodes == 1 and 2 * launcher.nproc_per_node <= RANKS_OF_A_HOST:
        return replace(launcher, nproc_per_node=2 * launcher.nproc_per_node)
    return replace(launcher, nodes=2 * launcher.nodes)


def _typed(before: LauncherConfig, after: LauncherConfig) -> str:
    """Overrides that turn one configuration into the other."""
    chosen = {} if before.name == after.name else {"launcher": after.name}
    names = ("nodes", "nproc_per_node", *after.shardings[0])
    for name in names:
        value = getattr(after, name)
        default = after.shardings[0].get(name, getattr(before, name, value))
        if value != getattr(before, name, default):
            chosen[f"launcher.{name}"] = "null" if value is None else getattr(value, "value", value)
    return " ".join(f"{name}={value}" for name, value in chosen.items())
