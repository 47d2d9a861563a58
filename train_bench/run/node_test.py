"""Node test before the clock: matrix products of all ranks at once and an all-reduce, through `Parallel` alone.

A GPU that is throttled, has memory errors or computes slower than those of its name holds all ranks up; it is named
before it does. `train-bench accept` tests for longer, and tells links apart.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from train_bench.core import gpus
from train_bench.core.digits import distinct
from train_bench.core.job import Job
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel
from train_bench.run import microbenchmarks
from train_bench.run.system import RankHardware

SIDE = {"cpu": 256, "cuda": 8192}
SECONDS = {"cpu": 0.0, "cuda": 1.0}
"""Seconds of products; those of the second half count."""

ALL_REDUCE_BYTES = {"cpu": 2**16, "cuda": 2**28}
REPETITIONS = 6
"""All-reduces, of which the fastest counts. The first one opens channels."""

TOLERANCE = {"cpu": 0.5, "cuda": 0.1}
"""Share by which a rank may compute slower than the median of those like it: processors are shared."""

SHOWN_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRates:
    """One rank: its host, its device by type and name, FLOP/s of its products, and the state of its GPU under them."""

    rank: int
    host: str
    device: str
    name: str
    flop_per_second: float
    state: Mapping[str, Any]


def is_due(job: Job, parallel: Parallel) -> bool:
    """As requested; by default on GPUs alone. Raises `LaunchError` on a device whose sizes are not known."""
    kind = parallel.device.type
    if job.node_test and kind not in SIDE:
        raise LaunchError(
            f"node_test=true is for {' and '.join(SIDE)}; ranks compute on {kind}. Leave it out."
        )
    return kind == "cuda" if job.node_test is None else job.node_test


def run(job: Job, parallel: Parallel, own: RankHardware) -> tuple[dict[str, Any], list[str]]:
    """Called by every rank, with its hardware. Figures for `system.json`, and sentences on ranks that are slower than
    others or have memory errors; on every rank."""
    kind = parallel.device.type
    parallel.barrier()
    rate, state = _products(job, parallel.device, own.identity)
    tested = RankRates(
        rank=parallel.rank,
        host=own.name,
        device=kind,
        name=own.accelerator or own.processor,
        flop_per_second=_rounded(rate),
        state=state,
    )
    reduced = None if parallel.size == 1 else _rounded(_all_reduce_rate(parallel, ALL_REDUCE_BYTES[kind]))
    if kind == "cuda":  # the memory of the run is measured next
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(parallel.device)
    ranks, reduced = parallel.from_rank_zero((parallel.gather_objects(tested), reduced))
    ranks = ranks or [tested]
    figures = {
        "precision": job.precision.value,
        "product_side": SIDE[kind],
        "all_reduce_bytes": ALL_REDUCE_BYTES[kind],
        "all_reduce_bytes_per_second": reduced,
        "ranks": [
            {"rank": one.rank, "host": one.host, "flop_per_second": one.flop_per_second, **one.state}
            for one in ranks
        ],
    }
    return figures, [*slow(ranks), *impaired(ranks)]


def slow(ranks: Sequence[RankRates]) -> Iterator[str]:
    """Sentences on hosts with ranks that compute slower than those with a device of the same name."""
    for name in dict.fromkeys(one.name for one in ranks):
        alike = [one for one in ranks if one.name == name]
        usual = statistics.median_high(one.flop_per_second for one in alike)
        least = (1 - TOLERANCE[alike[0].device]) * usual
        behind = [one for one in alike if one.flop_per_second < least]
        for host in dict.fromkeys(one.host for one in behind):
            own = [one for one in behind if one.host == host]
            rate = min(one.flop_per_second for one in own)
            below, allowed = distinct(100 * (1 - rate / usual), 100 * TOLERANCE[alike[0].device], decimals=0)
            yield (
                f"Matrix products on {host} are slow: {_numbers(own)} ({name}) at {rate / 1e12:.3g} TFLOP/s, "
                f"{below} % below the {usual / 1e12:.3g} that is usual among {len(alike)} ranks like it; {allowed} % "
                f"are allowed. {_look(own[0])} All ranks wait for the slowest."
            )


def impaired(ranks: Sequence[RankRates]) -> Iterator[str]:
    """Sentences on GPUs whose driver counts memory errors, or whose hardware slows them down."""
    for one in ranks:
        if errors := one.state.get("uncorrected_ecc_errors"):
            yield (
                f"The GPU of rank {one.rank} on {one.host} has {errors} uncorrected memory errors since the last "
                f"reset. Reset it, or leave {one.host} out."
            )
        if slowdowns := one.state.get("slowdowns"):
            yield (
                f"The GPU of rank {one.rank} on {one.host} is slowed down under load ({', '.join(slowdowns)}). "
                f"{_look(one)} All ranks wait for the slowest."
            )


def _look(one: RankRates) -> str:
    look = "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE" if one.device == "cuda" else "other processes"
    return f"Look at {look} on {one.host}, or leave this host out."


def _numbers(ranks: Sequence[RankRates]) -> str:
    shown = ", ".join(str(one.rank) for one in ranks[:SHOWN_RANKS])
    more = f" and {len(ranks) - SHOWN_RANKS} more" if len(ranks) > SHOWN_RANKS else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"


def _products(job: Job, device: torch.device, uuid: str | None) -> tuple[float, dict[str, Any]]:
    """FLOP/s, and what the driver says of a GPU meanwhile."""
    seconds, dtype = SECONDS[device.type], microbenchmarks.DTYPES.get(job.precision, torch.float32)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(_state, uuid, 0.6 * seconds)
        rate = microbenchmarks.settled_product_rate(SIDE[device.type], dtype, device, seconds)
        return rate, asked.result()


def _state(uuid: str | None, after: float) -> dict[str, Any]:
    if uuid is None:
        return {}
    time.sleep(after)
    return gpus.state(uuid)


def _all_reduce_rate(parallel: Parallel, size: int) -> float:
    """Bytes of the tensor a second, of the fastest of several all-reduces; every rank makes equally many."""
    values, fastest = torch.zeros(size // 4, device=parallel.device), math.inf
    for _ in range(REPETITIONS):
        parallel.barrier()
        began = time.perf_counter()
        float(parallel.sum(values)[0])  # waits for the device
        fastest = min(fastest, time.perf_counter() - began)
    return size / fastest


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")
