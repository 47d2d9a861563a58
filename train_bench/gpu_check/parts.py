"""Parts of `train-bench gpu-check` in order of value, and the expected range of their figures (`expected.yaml`)."""

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


@dataclass(frozen=True, slots=True)
class Part:
    """A part: its name, which is also that of its probe, what it shows, its usual seconds on a GPU, the seconds after
    which it is ended, the module of its probe, and its devices: `gpu` (any accelerator), `cuda`, `trains` (where runs
    are started) or `any`."""

    name: str
    shows: str
    seconds: float
    limit: float
    module: str = HERE
    device: str = "trains"

    def obstacle(self, device: str) -> str | None:
        """Reason not to try this part on a type of device; None without one."""
        if self.device in ("gpu", "cuda") and device == "cpu":
            return "needs a GPU"
        if self.device == "cuda" and device != "cuda":
            return f"needs CUDA, and the device is {device}"
        if self.device == "trains" and device not in TRAINS_ON:
            return f"runs train on {' and '.join(TRAINS_ON)}, and the device is {device}"
        if self.module == CHECKOUT and not is_checkout():
            return "needs a checkout of train_bench with the extra dev"
        return None


def is_checkout() -> bool:
    """True where tests and peers lie beside the package."""
    return (discover.ROOT / "bench" / "gpu" / "probes.py").is_file()


PARTS = (
    Part("facts", "accelerator, driver, versions, cores, quota, shared memory", 8, 60, device="any"),
    Part("peaks", "matrix products by precision, memory, host link", 20, 90, device="any"),
    Part("gpu_tests", "the tests marked gpu", 45, 150, CHECKOUT, "cuda"),
    Part("bert_midi", "a run to the target in bf16, with energy", 70, 150),
    Part("llama_midi", "a run of a decoder to the target in bf16, with energy", 50, 150),
    Part("profile_llama", "where a step of llama31_8b_midi goes in bf16", 80, 160),
    Part("profile_bert", "where a step of bert_midi goes in bf16", 80, 160),
    Part("profile_resnet", "where a step of resnet_midi goes in bf16", 65, 140),
    Part("references", "steps of four references against peers in bf16, at GPU batches", 120, 240, CHECKOUT),
    Part("waits", "share of the timed window that waits for data, minis", 60, 150, CHECKOUT),
    Part("loader", "images per second of ResNet's loader on JPEGs", 20, 90, CHECKOUT),
    Part("compile", "a run of the compiled model", 60, 150),
    Part("precisions", "runs of resnet_midi in every precision", 120, 300),
    Part("repeatable", "two equal runs, bit by bit", 50, 150, CHECKOUT),
    Part("memory", "peak memory of a full-width step against `plan --dry`", 70, 140, CHECKOUT),
    Part("convolutions", "ResNet-50 in bf16 by cudnn.benchmark and memory format", 40, 120, CHECKOUT),
    Part("graph", "a whole step as a CUDA graph against eager", 15, 60, CHECKOUT, "cuda"),
    Part("nccl", "a process group of one rank over NCCL", 10, 60, device="cuda"),
    Part(
        "two_ranks", "DDP, FSDP2 and tensor parallelism of two ranks on one device by Gloo", 57, 150, CHECKOUT
    ),
    Part("messages", "messages on exhausted memory and on a stopped rank", 50, 150),
    Part(
        "sparse",
        "sparse optimizers: dlrm_dcnv2 at 32,768 samples, tables of a million rows",
        20,
        90,
        CHECKOUT,
    ),
    Part("record", "epochs of a CIFAR-sized network, data on the GPU, captured step", 20, 60, device="gpu"),
    Part("clock", "the barrier before run_start waits for the device", 8, 60, CHECKOUT, "cuda"),
    Part("other_references", "steps of the other references against peers in bf16", 110, 240, CHECKOUT),
)

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
    rows = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text(encoding="utf-8"))
    return tuple(Expected(**row) for row in rows)


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
