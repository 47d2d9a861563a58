"""Parts of `gpu_check.py` in order of value, and the range in which each of their figures is expected. A module; it has
no command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A part: its name, which is also that of its probe, what it shows, the seconds it takes on a GPU, those after
    which it is killed, and whether it needs a GPU."""

    name: str
    shows: str
    seconds: float
    limit: float
    needs_gpu: bool = False


PARTS = (
    Part("facts", "GPU, driver, versions, cores, quota, shared memory", 8, 60),
    Part("peaks", "matrix products by precision, memory, host link", 20, 90),
    Part("gpu_tests", "the tests marked gpu", 45, 150, needs_gpu=True),
    Part("bert_midi", "a run to the target in bf16, with energy", 70, 150),
    Part("llama_midi", "a run of a decoder to the target in bf16, with energy", 70, 150),
    Part("profile_llama", "where a step of llama31_8b_midi goes in bf16", 80, 160),
    Part("profile_bert", "where a step of bert_midi goes in bf16", 80, 160),
    Part("profile_resnet", "where a step of resnet_midi goes in bf16", 65, 140),
    Part("references", "steps of four references against peers in bf16, at batches of a GPU", 120, 240),
    Part("repeatable", "two equal runs, bit by bit", 50, 150),
    Part("clock", "the barrier before run_start waits for the device", 8, 60, needs_gpu=True),
    Part("memory", "peak memory of a step at full width against `plan --dry`", 70, 140),
    Part("convolutions", "ResNet-50 in bf16 by cudnn.benchmark and memory format", 40, 120),
    Part("graph", "a whole step as a CUDA graph against eager", 15, 60, needs_gpu=True),
    Part("nccl", "a process group of one rank over NCCL", 10, 60, needs_gpu=True),
    Part("waits", "share of the timed window that waits for data, minis", 60, 150),
    Part("loader", "images per second of ResNet's loader on JPEGs", 20, 90),
    Part("two_ranks", "DDP, FSDP2 and tensor parallelism of two ranks on one device over Gloo", 57, 150),
    Part("other_references", "steps of the other references against peers in bf16", 110, 240),
    Part("compile", "a run of the compiled model", 60, 150),
    Part("precisions", "runs of resnet_midi in every precision", 120, 300),
    Part("messages", "what is said when memory runs out, and when a rank stops", 50, 150),
)

NAMES = tuple(part.name for part in PARTS)


@dataclass(frozen=True, slots=True)
class Expected:
    """Range of a figure, by its path in the numbers of a part (`*`: every key), and what is wrong outside."""

    part: str
    figure: str
    low: float
    high: float
    means: str


ON_A_GPU = (
    Expected("gpu_tests", "skipped", 0, 0, "a test marked gpu did not run"),
    Expected("profile_llama", "share_of_peak", 0.35, 1, "the step leaves the matrix units idle"),
    Expected("profile_bert", "share_of_peak", 0.35, 1, "the step leaves the matrix units idle"),
    Expected("profile_llama", "wait_share", 0, 0.05, "the step waits for data"),
    Expected("profile_bert", "wait_share", 0, 0.05, "the step waits for data"),
    Expected("profile_resnet", "wait_share", 0, 0.05, "the step waits for data"),
    Expected("waits", "*.wait_share", 0, 0.05, "the run waits for data"),
    Expected("memory", "*.ratio", 0.9, 1.1, "`plan --dry` is off by more than a tenth"),
    Expected("references", "*.ratio", 1, 100, "the reference is slower than its peer"),
    Expected("other_references", "*.ratio", 1, 100, "the reference is slower than its peer"),
    Expected("clock", "queued_seconds", 0, 0.1, "queueing a kernel took as long as the kernel"),
    Expected("graph", "*.ratio", 1, 100, "the captured step is slower than the eager one"),
    Expected("nccl", "init_seconds", 0, 30, "a group of one rank takes long to open"),
)

PEAKS = {
    "H100": {"bf16_8192_tflops": (600, 990), "fp16_8192_tflops": (600, 990), "triad_tb_s": (2.4, 3.4)},
    "H200": {"bf16_8192_tflops": (600, 990), "fp16_8192_tflops": (600, 990), "triad_tb_s": (3.6, 4.9)},
}
"""By a word of a GPU's name. The upper ends are those of its data sheet."""


def expectations(gpu: str | None) -> Iterator[Expected]:
    """Those of a GPU, if it is one; a CPU is held to none."""
    if gpu is None:
        return
    yield from ON_A_GPU
    for word, ranges in PEAKS.items():
        if word in gpu:
            for figure, (low, high) in ranges.items():
                yield Expected("peaks", figure, low, high, f"an {word} is known to reach it and not more")


def out_of_range(expected: Expected, numbers: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each figure outside its range."""
    for path, value in _figures(expected.figure.split("."), numbers):
        if not expected.low <= value <= expected.high:
            yield (
                f"{expected.part}: {path} is {value:.4g}, expected {expected.low:g} to {expected.high:g}: "
                f"{expected.means}."
            )


def _figures(keys: list[str], numbers: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    chosen = list(numbers) if keys[0] == "*" else [key for key in keys[:1] if key in numbers]
    for key in chosen:
        value, path = numbers[key], f"{above}{key}"
        if len(keys) > 1:
            if isinstance(value, Mapping):
                yield from _figures(keys[1:], value, f"{path}.")
        elif isinstance(value, int | float):
            yield path, value
