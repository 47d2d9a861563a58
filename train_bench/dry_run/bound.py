"""What a step takes at least on a machine of stated speed, and whether a rank fits."""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.dry_run.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one rank has, as its user states it; None is not stated. Prefixes are decimal: a GB is 10^9 bytes.

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
    """Of a step of the global batch.

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
    """Of what the machine states. Padding need not be computed, so where it is known what is none, that counts."""
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
    """Bytes between the device and its memory, at least, if no cache holds what a pass leaves: activations and inputs
    are written once and read once in every micro-batch; gradients are written and read, and the state of the optimizer
    and the weights that have gradients are read and written, once a step."""
    memory, updated = step.memory, min(step.memory["gradients"], step.memory["weights"])
    of_micro_batch = 2 * (memory["activations"] + memory["inputs"])
    return step.micro_batches * of_micro_batch + 2 * (memory["gradients"] + memory["optimizer"] + updated)


def _sent(step: Step) -> float:
    """Bytes that a rank sends at least: an average over n ranks takes 2 (n - 1) / n of what is averaged, an all-to-all
    (n - 1) / n of what is exchanged."""
    groups = step.ranks // step.together
    return 2 * (groups - 1) / groups * step.reduced + (step.ranks - 1) / step.ranks * step.exchanged
