"""Meeting of the ranks of a torch process group: what has to be known of all before the first collective."""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from train_bench.core.job import Device, Job
from train_bench.errors import LaunchError

MARGIN_SECONDS = 60.0
"""Time that the watchdogs of the ranks have for their reports before torch ends a collective that stalls."""

NO_LIMIT = timedelta(days=365)

_meetings = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Device of one rank: `cpu`, or `cuda` and what tells the GPU from all others."""

    rank: int
    host: str
    device: str
    gpu: str | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def open_group(job: Job, device: torch.device, *, rank: int, size: int) -> None:
    """Open the process group of all ranks, once their devices fit together: Gloo, and NCCL beside it on GPUs. Raises
    `LaunchError` on every rank, with the same sentence, if they do not."""
    store, _, _ = next(rendezvous("env://", rank, size, timeout=_seconds(job.start_limit_seconds)))
    reason = _agree(store, place_of(device, rank), size, job.device)
    if reason is not None:
        raise LaunchError(reason)
    on_gpu = device.type == "cuda"
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=PrefixStore("default_pg", store),
        rank=rank,
        world_size=size,
        timeout=group_timeout(job),
        device_id=device if on_gpu else None,
    )


def group_timeout(job: Job) -> timedelta:
    """Time after which torch ends a collective: behind the watchdogs of the ranks, which name it."""
    limit = job.stall_limit_seconds
    return NO_LIMIT if limit is None else _seconds(limit + MARGIN_SECONDS)


def place_of(device: torch.device, rank: int) -> Place:
    """Place of this rank, which computes on `device`."""
    gpu = None
    if device.type == "cuda":
        gpu = str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))
    return Place(rank=rank, host=platform.node(), device=device.type, gpu=gpu)


def refuse_places(places: Sequence[Place], asked: Device) -> str | None:
    """Reason that ranks cannot train together, as a sentence; None if they can: some have a GPU and some none, or two
    have the same."""
    for kind in ("cpu", "cuda"):
        if kind not in {place.device for place in places}:
            return _refuse_shared(places)
    without = [place for place in places if place.device == "cpu"]
    hosts = ", ".join(dict.fromkeys(place.host for place in without))
    has_one = next(place for place in places if place.device == "cuda")
    return (
        f"device={asked.value}: PyTorch finds no GPU for {len(without)} of {len(places)} ranks ({hosts}; first "
        f"{without[0]}), and one for {has_one}. Look at nvidia-smi on {hosts}, leave "
        "these hosts out, or set device=cpu."
    )


def _refuse_shared(places: Sequence[Place]) -> str | None:
    users: dict[tuple[str, str], Place] = {}
    for place in places:
        if place.gpu is None:
            continue
        other = users.setdefault((place.host, place.gpu), place)
        if other is not place:
            return (
                f"Rank {other.rank} and rank {place.rank} on {place.host} have the same GPU ({place.gpu}). Give each "
                "rank one of its own (a GPU a task, or all GPUs of a host to all of its ranks), or reduce "
                "launcher.nproc_per_node."
            )
    return None


def _agree(store: Any, own: Place, size: int, asked: Device) -> str | None:
    """Exchange the places of all ranks through the store of their rendezvous. Rank 0 decides for all."""
    prefix = f"train_bench/{next(_meetings)}"
    store.set(f"{prefix}/{own.rank}", json.dumps(asdict(own)))
    if own.rank == 0:
        places = [Place(**json.loads(store.get(f"{prefix}/{rank}"))) for rank in range(size)]
        store.set(f"{prefix}/all", json.dumps(refuse_places(places, asked)))
    reason: str | None = json.loads(store.get(f"{prefix}/all"))
    return reason


def _seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
