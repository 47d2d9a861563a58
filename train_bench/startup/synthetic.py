"""Synthetic models of a requested size: weights of a seed in a file, and the right answer, from one process."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

from train_bench.core import software
from train_bench.errors import RequestError
from train_bench.startup.ladder import Subject
from train_bench.startup.started import start

WIDTH = 512
"""Inputs and outputs of a layer, whose weights are 1 MiB."""

LAYER_BYTES = 4 * WIDTH * WIDTH
SEED = 1
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)([a-z]+)", re.IGNORECASE)
LARGEST_BYTES = 10**12


def layers_of(size: str) -> int:
    """Number of layers nearest to a size (`10MB`, `1.5GB`, `256MiB`). Raises `RequestError` for what is none, and for
    less than a layer or more than 1 TB."""
    found = SIZE.fullmatch(size)
    unit = None if found is None else UNITS.get(found[2].upper())
    count = 0.0 if found is None or unit is None else float(found[1]) * unit
    if not LAYER_BYTES <= count <= LARGEST_BYTES:
        raise RequestError(
            f"'{size}' is not a valid size of a synthetic model; give 2MB to 1000GB, a number and one of kB, MB, GB, "
            f"KiB, MiB and GiB, for example 100MB."
        )
    return round(count / LAYER_BYTES)


def refuse_without_torch() -> None:
    """Raise `RequestError` if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise RequestError(
            f"Synthetic models need a package that is not installed (torch): {software.install_command('references')}. "
            f"Nothing was started."
        )


def refuse_lack_of_room(layers: int, disk: Path, memory: Path) -> None:
    """Raise `RequestError` if the disk does not hold the weights twice (the file, and that of the store), or the memory
    not at once in shared memory and in a process."""
    size = layers * LAYER_BYTES
    there = next(path for path in (disk, *disk.absolute().parents) if path.exists())
    wanted = [
        (2 * size, shutil.disk_usage(there).free, str(disk)),
        (size, shutil.disk_usage(memory).free, str(memory)),
    ]
    available = available_memory()
    if available is not None:
        wanted.append((2 * size, available, "the memory of this machine"))
    for needed, free, place in wanted:
        if needed > free:
            raise RequestError(
                f"A synthetic model of {size / 1e6:,.0f} MB takes {needed / 1e6:,.0f} MB of {place}, where "
                f"{free / 1e6:,.0f} MB are free; give a smaller one, or another folder. Nothing was started."
            )


def available_memory() -> int | None:
    """Bytes that processes can get without swapping; None: unknown."""
    try:
        found = re.search(
            r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("utf-8"), re.MULTILINE
        )
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


def make(layers: int, folder: Path, *, name: str) -> Subject:
    """Draw the weights, answer with them, and write them into `folder`, in a process of its own."""
    described = {"layers": layers, "seed": SEED}
    path = folder / f"synthetic_{layers}.safetensors"
    with start({**described, "request": {"load": "draw", "save": str(path)}}, folder) as process:
        made = process.first
    return Subject(name=name, described=described, weights=[(path, made["digest"])], answer=made["answer"])
