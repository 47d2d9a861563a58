"""System description: the machine and its software as a rank detects them, as opposed to the request."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench.core import gpus, software

if TYPE_CHECKING:
    import torch

SHOWN_HOSTS = 8
"""Hosts that a sentence names."""


def describe() -> dict[str, Any]:
    """Processors, memory, accelerators, operating system and versions, as plain data. torch is queried if this process
    has imported it."""
    torch = sys.modules.get("torch")
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerators": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch
        else list(_gpus(os.environ)),
        "operating_system": _operating_system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": software.versions(),
        "cuda": torch.version.cuda if torch and torch.cuda.is_available() else None,
        "environment": software.variables(),
        "threads_per_rank": torch.get_num_threads() if torch else None,
    }


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def platform_name(machine: dict[str, Any], *, nodes: int, device: str = "auto") -> str:
    """One line that names hosts like this one: their visible accelerators, or else their processors. For a program of
    the user's own, which does not say what it uses; for ranks see `platform_of`."""
    counted = Counter(machine["accelerators"] if device != "cpu" else ())
    cores = f"{machine['cores']} cores of {machine['processor']}"
    return f"{nodes} x ({_counted(counted) if counted else cores})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHardware:
    """Hardware of one rank: its host by number and name, its accelerator by name and by what tells it from others of
    its host (both None on a CPU), its processor and the CPU cores that it may use. `facts` are what should be equal on
    all hosts, by their name in a sentence."""

    host: int
    accelerator: str | None
    identity: str | None
    processor: str
    cores: frozenset[int]
    name: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


def rank_hardware(device: torch.device, *, host: int) -> RankHardware:
    """Hardware of this rank, which computes on `device`."""
    torch = sys.modules["torch"]
    on_gpu = device.type == "cuda"
    index = torch.cuda.current_device() if on_gpu and device.index is None else device.index
    # A rank that sees one GPU alone calls it 0, whichever it is.
    properties = torch.cuda.get_device_properties(index) if on_gpu else None
    uuid = getattr(properties, "uuid", index) if on_gpu else None
    facts = {"processor": _processor()}
    if on_gpu:
        facts |= {
            "GPU": torch.cuda.get_device_name(index),
            "NVIDIA driver": gpus.driver_version() or "unknown",
        }
        facts["GPU memory"] = f"{getattr(properties, 'total_memory', 0) / 2**30:.1f} GiB"
        facts["power limit"] = f"{gpus.power_limit_watts(str(uuid)) or 'unknown'} W"
        facts["largest GPU clock"] = f"{gpus.largest_clock_mhz(str(uuid)) or 'unknown'} MHz"
    return RankHardware(
        name=platform.node(),
        facts=facts,
        host=host,
        accelerator=torch.cuda.get_device_name(index) if on_gpu else None,
        identity=str(uuid) if on_gpu else None,
        processor=_processor(),
        cores=frozenset(os.sched_getaffinity(0)),
    )


def unequal(ranks: Sequence[RankHardware]) -> list[str]:
    """Facts that differ among ranks, as sentences: each value with its hosts, the most common one first."""
    sentences = []
    for name in dict.fromkeys(name for rank in ranks for name in rank.facts):
        hosts: dict[str, list[str]] = {}
        for rank in ranks:
            hosts.setdefault(rank.facts.get(name, "none"), []).append(rank.name)
        by_count = sorted(hosts.items(), key=lambda item: -len(item[1]))
        if len(by_count) > 1:
            said = "; ".join(f"{value} on {_some(dict.fromkeys(names))}" for value, names in by_count)
            sentences.append(f"The {name} differs: {said}. All ranks wait for the slowest.")
    return sentences


def _some(names: Iterable[str]) -> str:
    first = [*names]
    more = f" and {len(first) - SHOWN_HOSTS} more" if len(first) > SHOWN_HOSTS else ""
    return ", ".join(first[:SHOWN_HOSTS]) + more


def used_accelerators(ranks: Iterable[RankHardware]) -> list[str]:
    """Names of the accelerators that ranks of one host use; two ranks may share one."""
    return list({rank.identity: rank.accelerator for rank in ranks if rank.accelerator is not None}.values())


def platform_of(ranks: Sequence[RankHardware]) -> str:
    """One line that names the hosts of all ranks by what these use: `2 x (8 x A)`, and `1 x (8 x A) + 1 x (4 x B)` of
    hosts that differ."""
    hosts: dict[int, list[RankHardware]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host, []).append(rank)
    named = Counter(_host_name(of_host) for of_host in hosts.values())
    return " + ".join(f"{count} x ({name})" for name, count in named.items())


def _host_name(ranks: Sequence[RankHardware]) -> str:
    accelerators = Counter(used_accelerators(ranks))
    if accelerators:
        return _counted(accelerators)
    cores = len(frozenset().union(*(rank.cores for rank in ranks)))
    return f"{cores} cores of {ranks[0].processor}"


def _counted(names: Counter[str]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in names.items())


def _gpus(environ: Mapping[str, str]) -> Iterator[str]:
    """Models of the GPUs that NVIDIA's driver lists and `CUDA_VISIBLE_DEVICES` leaves, which ends at the first word
    that names none."""
    models: dict[str, str] = {}
    for path in sorted(gpus.LISTED.glob("*/information")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "Model" in fields:
            models[fields.get("GPU UUID", path.parent.name)] = fields["Model"]
    words = environ.get("CUDA_VISIBLE_DEVICES")
    for word in map(str, range(len(models))) if words is None else map(str.strip, words.split(",")):
        by_number = [model for number, model in enumerate(models.values()) if str(number) == word]
        by_uuid = [model for uuid, model in models.items() if word and uuid.startswith(word)]
        if len(found := by_number or by_uuid) != 1:
            return
        yield found[0]


def batch_job(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Number of the Slurm job that this process is a part of, `12_3` for a task of an array, and its nodes; None
    outside of one."""
    number = environ.get("SLURM_JOB_ID")
    if number is None:
        return None
    if "SLURM_ARRAY_JOB_ID" in environ:
        number = f"{environ['SLURM_ARRAY_JOB_ID']}_{environ.get('SLURM_ARRAY_TASK_ID', '')}"
    return {"job": number, "nodes": environ.get("SLURM_JOB_NODELIST", "")}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()
