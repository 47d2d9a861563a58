"""Options of sharded training, of every launcher that starts torch's own ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from train_bench.launcher import LauncherConfig
from train_bench.launchers.parts.elementwise import refuse_whole_tensors
from train_bench.task import BenchmarkConfig


class Shard(str, Enum):
    """Sharding of weights, gradients and the optimizer's state: torch's FSDP2, over all ranks or (hybrid) over those of
    each host, with a copy on every host."""

    fsdp = "fsdp"
    hsdp = "hsdp"


@dataclass(slots=True, kw_only=True)
class ShardingConfig(LauncherConfig):
    """The ranks' side is `parallel_of` in `torch_ranks.py`.

    shard        sharding of the training state among ranks: fsdp over all, hsdp over those of a host with a copy on
                 every host; null replicates it
    reduce_once  (shard) reduce gradients once a step, not in every micro-batch: less traffic, whole gradients between
    reduce_fp32  (shard) reduce gradients in float32; false: in the numerics of the job where they are computed in these
    tensor_parallel  size of a tensor-parallel group of neighbouring ranks, which compute the same samples
    """

    shard: Shard | None = None
    reduce_once: bool = False
    reduce_fp32: bool = True
    tensor_parallel: int = 1

    @property
    def together(self) -> int:
        """Ranks per tensor-parallel group."""
        return self.tensor_parallel

    @property
    def sharing(self) -> int:
        """All ranks, or with hybrid sharding those of a host."""
        return self.nproc_per_node if self.shard is Shard.hsdp else self.world_size

    @property
    def divides(self) -> tuple[str, ...]:
        """All of it; with `reduce_once`, gradients are whole at times."""
        if self.shard is None:
            return ()
        return ("weights", "optimizer") if self.reduce_once else ("weights", "gradients", "optimizer")

    @property
    def reduces_cast(self) -> bool:
        """By `reduce_fp32=false`."""
        return not self.reduce_fp32

    @property
    def shardings(self) -> tuple[Mapping[str, Any], ...]:
        """FSDP2, then tensor parallelism within a host, then both."""
        groups = (2, 4, 8)
        shards = (
            (None, 1),
            (Shard.fsdp, 1),
            *((shard, size) for shard in (None, Shard.fsdp) for size in groups),
        )
        return tuple({"shard": shard, "tensor_parallel": together} for shard, together in shards)

    def whole_weights(self, benchmark: BenchmarkConfig) -> bool:
        """Not of a network that ranks construct in shards."""
        return not benchmark.BUILT_IN_SHARDS and LauncherConfig.whole_weights(self, benchmark)

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse optimizers and models that torch's sharding does not fit, and combinations that are not tested."""
        return self._refuse_shard(benchmark) or self._refuse_tensor_parallel(benchmark)

    def _refuse_shard(self, benchmark: BenchmarkConfig) -> str | None:
        if self.shard is None:
            return self._refuse_unsharded()
        option = f"launcher.shard={self.shard.value}"
        if benchmark.SHARDED:
            return (
                f"{option} does not support {benchmark.benchmark}, which shards its tables itself; leave "
                "it out."
            )
        if self.shard is Shard.hsdp and self.nodes == 1:
            return f"{option} keeps a copy on every host, and launcher.nodes is 1; use launcher.shard=fsdp."
        if benchmark.compile_mode:
            return f"{option} is not tested with benchmark.compile=true; leave one of them out."
        return refuse_whole_tensors(benchmark, option=option, instead=f"launcher={self.name} without it")

    def _refuse_unsharded(self) -> str | None:
        for name, default in (("reduce_once", False), ("reduce_fp32", True)):
            if getattr(self, name) != default:
                return f"launcher.{name} is for launcher.shard=fsdp; set that, too, or leave it out."
        return None

    def _refuse_tensor_parallel(self, benchmark: BenchmarkConfig) -> str | None:
        together = self.tensor_parallel
        option = f"launcher.tensor_parallel={together}"
        if together == 1:
            return None
        if together < 1 or self.world_size % together:
            return f"{option} does not divide {self.world_size} ranks; choose a divisor, or leave it out."
        if self.shard is not None and (self.sharing == together or self.sharing % together):
            return (
                f"{option} leaves nothing to launcher.shard={self.shard.value}, which shards over {self.sharing} "
                "ranks; choose a smaller divisor, or leave one of them out."
            )
        if benchmark.compile_mode:
            return f"{option} is not tested with benchmark.compile=true; leave one of them out."
        return benchmark.refuse_tensor_parallel(together) or refuse_whole_tensors(
            benchmark, option=option, instead=f"launcher={self.name} without it"
        )
