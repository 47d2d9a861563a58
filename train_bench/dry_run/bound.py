"""Roofline lower bound of a step on a machine of stated speed, and whether a rank fits its memory."""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.dry_run.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Stated resources of one rank; None: not stated. Prefixes are decimal: a GB is 10^9 bytes.

    memory_gb      of its device
    peak_tflops    10^12 FLOP a second in the precision of the job
    memory_gb_s    GB a second between the device and its memory
    network_gb_s   GB a second that it sends to other ranks
    """

    memory_gb: float | None = None
    peak_tflops: float | None = None
    memory_gb_s: float | None = None
    network_gb_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Lower bound of a step of the global batch.

    fits        whether the peak of a step fits the memory, and weights while they are whole
    seconds     by what takes them: compute, memory, network; what the machine does not state is missing
    seconds_real  of compute, without padding
    term        which is the longest; a step takes that at least, however well they overlap
    step_seconds  how long that is
    """

    fits: bool | None
    seconds: dict[str, float]
    seconds_real: float | None
    term: str | None
    step_seconds: float | None


def bound_of(step: Step, machine: Machine) -> Bound:
    """Bound from the stated resources. Padding need not be computed: where the unpadded share is known, it counts."""
    seconds: dict[str, float] = {}
    real = None
    if machine.peak_tflops is not None:
        samples = step.samples * step.micro_batches
        seconds["compute"] = step.flop_per_sample * samples / (machine.peak_tflops * 1e12)
        if step.real_flop is not None:
            real = step.real_flop * samples / (machine.peak_tflops * 1e12)
    if machine.memory_gb_s is not None:
        seconds["memory"] = _moved(step) / (machine.memory_gb_s * 1e9)
    if machine.network_gb_s is not None:
        seconds["network"] = _sent(step) / (machine.network_gb_s * 1e9)
    most = max(sum(step.peak.values()), step.undivided)
    longest = seconds | ({} if real is None else {"compute": real})
    term = max(longest, key=longest.__getitem__) if longest else None
    return Bound(
        fits=None if machine.memory_gb is None else most <= machine.memory_gb * 1e9,
        seconds=seconds,
        seconds_real=real,
        term=term,
        step_seconds=None if term is None else longest[term],
    )


def _moved(step: Step) -> float:
    """Minimum bytes between device and memory, if no cache keeps what a pass leaves: activations and inputs are written
    once and read once in every micro-batch; gradients are written and read, and the optimizer state and the weights
    with gradients are read and written, once a step."""
    memory, updated = step.memory, min(step.memory["gradients"], step.memory["weights"])
    of_micro_batch = 2 * (memory["activations"] + memory["inputs"])
    return step.micro_batches * of_micro_batch + 2 * (memory["gradients"] + memory["optimizer"] + updated)


def _sent(step: Step) -> float:
    """Minimum bytes that a rank sends: over n ranks an all-reduce takes 2 (n - 1) / n of its size, an all-gather, a
    reduce-scatter and an all-to-all (n - 1) / n. Copies that are sharded are averaged shard by shard."""
    groups = step.ranks // (step.together * step.sharing)
    shares = (step.sharing - 1) / step.sharing * (step.gathers + step.reduced)
    averaged = 2 * (groups - 1) / groups * step.reduced / step.sharing
    return shares + averaged + (step.ranks - 1) / step.ranks * step.exchanged
