"""Parts of `train-bench gpu-check` in order of value (`parts.yaml`), and expected ranges of their figures
(`expected.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.plan import discover

HERE, CHECKOUT = "train_bench.gpu_check.probes", "bench.gpu.probes"
"""Modules of probes: that of any installation, and that of a checkout, which has tests and peers as well."""

TRAINS_ON = ("cpu", "cuda")
"""Types of devices that runs are started on; a GPU of AMD is `cuda` for torch, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part: what `parts.yaml` says of its fields."""

    name: str
    shows: str
    seconds: float
    limit: float
    device: str = "trains"
    checkout: bool = False
    probe: str | None = None
    benchmark: str | None = None

    @property
    def module(self) -> str:
        """Module of its probe."""
        return CHECKOUT if self.checkout else HERE

    def obstacle(self, device: str) -> str | None:
        """Reason not to try this part on a type of device; None without one."""
        if self.device in ("gpu", "cuda") and device == "cpu":
            return "needs a GPU"
        if self.device == "cuda" and device != "cuda":
            return f"needs CUDA, and the device is {device}"
        if self.device == "trains" and device not in TRAINS_ON:
            return f"runs train on {' and '.join(TRAINS_ON)}, and the device is {device}"
        if self.checkout and not is_checkout():
            return "needs a checkout of train_bench with the extra dev"
        return None


def is_checkout() -> bool:
    """True where tests and peers lie beside the package."""
    return (discover.ROOT / "bench" / "gpu" / "probes.py").is_file()


def _rows(file: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return rows


PARTS = tuple(Part(**row) for row in _rows("parts.yaml"))

NAMES = tuple(part.name for part in PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected range of a figure, by its path in the numbers of a part (`*`: every key), what a figure outside of it
    means, and a word of the accelerators that are held to it (None: every one)."""

    part: str
    figure: str
    low: float
    high: float
    means: str
    accelerator: str | None = None


@cache
def expected() -> tuple[Expected, ...]:
    """All ranges of `expected.yaml`."""
    return tuple(Expected(**row) for row in _rows("expected.yaml"))


def expectations(accelerator: str | None) -> Iterator[Expected]:
    """Ranges that an accelerator is held to; a CPU is held to none."""
    if accelerator is not None:
        yield from (one for one in expected() if one.accelerator is None or one.accelerator in accelerator)


def out_of_range(range_: Expected, numbers: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each figure outside its range."""
    for path, value in _figures(range_.figure.split("."), numbers):
        if not range_.low <= value <= range_.high:
            yield (
                f"{range_.part}: {path} is {value:.4g}, expected {range_.low:g} to {range_.high:g}: "
                f"{range_.means}."
            )


def _figures(keys: list[str], numbers: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key in numbers:
        if not fnmatchcase(key, keys[0]):
            continue
        value, path = numbers[key], f"{above}{key}"
        if len(keys) > 1:
            if isinstance(value, Mapping):
                yield from _figures(keys[1:], value, f"{path}.")
        elif isinstance(value, int | float):
            yield path, value
