"""Profiling rank of `train-bench profile`: `python -m train_bench.profile.rank PLAN.json INDEX`.

The same steps are trained from the same state once for each level and round, in turns: without an observer (level 0),
with phases (1), modules (2) and operators (3). None of this is under a clock that counts.
"""

from __future__ import annotations

import inspect
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any, cast

import torch
from torch.autograd.graph import saved_tensors_hooks

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.core.sharded_tensors import own_part
from train_bench.parallel import Parallel
from train_bench.profile import bound, document, peak, predicted
from train_bench.profile.layers import Content, Contents, Layers
from train_bench.profile.observed import Observed
from train_bench.profile.operators import OneStep, Operators
from train_bench.profile.peak import Peak
from train_bench.profile.timeline import Timeline
from train_bench.progress import Mark, Unit
from train_bench.run import memory, rank
from train_bench.seeds import derive
from train_bench.task import Task

COUNTED_IN_SAMPLES = (Unit.EPOCH, Unit.SAMPLE)


def profiled(job: Job, task: Task, parallel: Parallel) -> None:
    """Measure, and write the merged observations of all ranks as `profile.json`; or only predict, without training."""
    if job.work_options["bricks"] is not None:
        content = predicted.predicted(job, task, parallel)
        if parallel.rank == 0:
            files.write_json(job.folder / "profile.json", content)
        return
    measured = parallel.gather_objects(measure(job, task, parallel))
    if measured is not None:
        files.write_json(job.folder / "profile.json", document.profile(job, measured))


def measure(job: Job, task: Task, parallel: Parallel) -> dict[str, Any]:
    """All measurements of this rank."""
    options = job.work_options
    observed = Observed(parallel)
    rank_peak = _peak(job, parallel)
    task.build(job.seed, cast(Parallel, observed))
    task.open_data()
    rounds = _Rounds(job, task, observed)
    with rounds.state():
        contents = rounds.contents(rank_peak)
        exported = rounds.export()
        for _ in range(options["rounds"]):
            for level in range(len(document.LEVELS)):
                rounds.take(level)
    bounded = _bound(job, observed, contents, rounds.steps_of_contents) if options["bound"] else None
    return {
        "rank": parallel.rank,
        "host": socket.gethostname(),
        "threads": torch.get_num_threads(),
        "device": parallel.device.type,
        "accelerator": torch.cuda.get_device_name(parallel.device)
        if parallel.device.type == "cuda"
        else None,
        "peak": asdict(rank_peak),
        "padded": "share" in inspect.signature(getattr(task, "synthetic", len)).parameters,
        "steps_of_window": rounds.steps_of_window,
        "rounds": rounds.taken,
        "evaluations": rounds.evaluations,
        "layers": _layers(
            observed, rounds.layers, contents, rounds.steps_of_level[2], rounds.steps_of_contents, bounded
        ),
        "bound": bounded,
        "operators": rounds.operators.table(max(1, rounds.steps_of_level[3])),
        "kernels": rounds.operators.kernels(max(1, rounds.steps_of_level[3])),
        "device_calls": rounds.operators.device_calls(max(1, rounds.steps_of_level[3])),
        "unclassified": sorted(contents.unknown),
        "memory": _memory(observed, contents),
        "exports": exported,
        "overlap": _overlap(observed),
    }


class _Rounds:
    """Stretches of the same steps from the same state.

    taken            of each level, the timelines of its rounds
    steps_of_window  steps from one evaluation to the next in a run
    """

    def __init__(self, job: Job, task: Task, observed: Observed) -> None:
        self._job, self._task, self._observed = job, task, observed
        self._folder = job.folder / "state"
        first = job.schedule.marks()[0].count
        self._lead, self._end = 0, first
        self.steps_of_window: float | None = None
        if job.unit in COUNTED_IN_SAMPLES:
            batch = int(job.config["hyperparameters"]["global_batch_size"])
            period = job.schedule.period * job.schedule.samples_per_unit / batch
            self.steps_of_window = period
            self._lead = batch
            self._end = batch * (1 + min(int(job.work_options["steps"]), max(1, first // batch)))
        self.taken: list[list[dict[str, Any]]] = [[] for _ in document.LEVELS]
        self.steps_of_level = [0] * len(document.LEVELS)
        self.evaluations: list[float] = []
        self.layers: dict[str, list[float]] = {}
        self.operators = Operators(observed.device)

    @contextmanager
    def state(self) -> Iterator[None]:
        """Context: the common start state of all rounds in a file, which all ranks read."""
        self._task.save(self._folder)
        try:
            yield
        finally:
            if self._observed.rank == 0:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        """Set the start state, and train a step that starts loaders and allocates memory."""
        torch.manual_seed(derive(self._job.seed, "profile"))
        self._task.load(self._folder)
        if self._lead:
            self._train(self._lead)
        self._observed.barrier()

    def _train(self, count: int) -> None:
        self._task.train_until(Mark(count=count, epoch_num=count, first_epoch_num=count, epoch_count=count))

    def contents(self, rank_peak: Peak) -> Contents:
        """Operators of the steps, and the last gradient; not timed."""
        contents = Contents(rank_peak, self._observed.model)
        layers = Layers(self._observed.model, self._observed.device, contents=contents)
        self._begin()
        timeline = Timeline(self._observed.device)
        with (
            self._observed.learning(),
            self._observed.recorded(timeline, layers),
            saved_tensors_hooks(contents.saved, lambda tensor: tensor),
        ):
            self._train(self._end)
        layers.remove()
        self.steps_of_contents = max(1, len(timeline.steps()[0]))
        return contents

    def export(self) -> dict[str, str]:
        """Export one step as files for other programs."""
        one_step = OneStep(self._job.folder, self._observed.rank, self._observed.device)
        self._begin()
        with self._observed.recorded(Timeline(self._observed.device), one_step):
            self._train(self._end)
        return one_step.written()

    def take(self, level: int) -> None:
        """Run one round of a level."""
        observed = self._observed
        layers = Layers(observed.model, observed.device) if level == 2 else None
        deeper = (None, None, layers, self.operators)[level]
        self._begin()
        timeline = Timeline(observed.device)
        under = self.operators.recorded() if level == 3 else nullcontext()
        with under, observed.recorded(timeline if level else None, deeper):
            processor = time.process_time()
            began = time.perf_counter()
            self._train(self._end)
            if observed.device.type == "cuda":
                torch.cuda.synchronize(observed.device)
            seconds = time.perf_counter() - began
            used = time.process_time() - processor
        steps, after = timeline.steps() if level else ([], None)
        self.steps_of_level[level] += len(steps)
        if level and steps:
            seconds = sum(step.seconds for step in [*steps, after] if step is not None)
        self.taken[level].append(
            {
                "seconds": seconds,
                "processor": used,
                "steps": [asdict(step) for step in steps],
                "after": None if after is None else asdict(after),
            }
        )
        if layers is not None:
            layers.remove()
            for name, layer in layers.measured().items():
                sums = self.layers.setdefault(name, [0.0, 0.0, 0.0])
                for at, value in enumerate((layer.forward, layer.backward, layer.calls)):
                    sums[at] += value
        if level == 1 and len(self.evaluations) < 2:
            observed.barrier()
            began = time.perf_counter()
            self._task.evaluate()
            observed.barrier()
            self.evaluations.append(time.perf_counter() - began)


def _peak(job: Job, parallel: Parallel) -> Peak:
    """Peak of this rank while all others measure theirs, or the stated one."""
    parallel.barrier()
    return peak.measure(parallel.device, job.precision, job.work_options["peak_tflops"])


def _bound(job: Job, observed: Observed, contents: Contents, steps: int) -> dict[str, Any]:
    """Operator times while all ranks measure theirs, as they train together, and then the communication."""
    observed.barrier()
    measured = bound.measure(contents.calls, contents.graph, steps, observed.device, job.precision)
    gradients = sum(weight.numel() for weight in observed.shared if weight.requires_grad)
    return measured | {"communication": bound.communication(observed, gradients, observed.device)}


def _layers(
    observed: Observed,
    measured: dict[str, list[float]],
    contents: Contents,
    steps: int,
    steps_of_contents: int,
    bounded: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """A record for each called module, in the model's order; everything outside has no type."""
    modules = {name or "(model)": module for name, module in observed.model.named_modules()}
    rows = []
    for name in ["", *modules]:
        if name not in measured and name not in contents.of:
            continue
        forward, backward, calls = measured.get(name, [0.0, 0.0, 0.0])
        content, module = contents.of[name], modules.get(name)
        weights = () if module is None else tuple(module.parameters(recurse=False))
        rows.append(
            {
                "name": name or "(outside the model)",
                "type": None if module is None else type(module).__name__,
                "parameters": "" if module is None else module.extra_repr(),
                "weights": [
                    {"shape": list(one.shape), "dtype": str(one.dtype).removeprefix("torch.")}
                    for one in weights
                ],
                "inputs": list(content.signatures.values()),
                "calls": calls / max(1, steps),
                "forward_seconds": forward / max(1, steps),
                "backward_seconds": backward / max(1, steps),
                "flop": {phase: flop / steps_of_contents for phase, flop in content.flop.items()},
                "ideal_seconds": _ideal(content, steps_of_contents),
                "output_bytes": content.output_bytes / steps_of_contents,
                "saved_bytes": content.saved_bytes / steps_of_contents,
                "double": content.double,
                "bound_seconds": bound.bound_of_layer(bounded, name),
            }
        )
    return rows


def _ideal(content: Content, steps: int) -> dict[str, dict[str, float]]:
    """Seconds at the peaks by phase and class."""
    ideal: dict[str, dict[str, float]] = {}
    for (phase, kind), seconds in content.ideal.items():
        ideal.setdefault(phase, {})[kind] = seconds / steps
    return ideal


def _memory(observed: Observed, contents: Contents) -> dict[str, float | None]:
    """Bytes by kind; activations are those of a micro-batch, as the next one takes their place. Kernel workspace is
    known of a GPU only, whose allocator reports its maximum."""
    weights = list(observed.model.parameters())
    host, device = memory.peak_bytes(observed.device)
    kinds: dict[str, float | None] = {
        "weights": _bytes([*weights, *observed.model.buffers()]),
        "gradients": _bytes([weight for weight in weights if weight.requires_grad]),
        "activations": sum(content.saved_bytes for content in contents.of.values())
        / max(1, contents.backward_passes),
        "optimizer": _bytes(
            [value for state in observed.optimizer.state.values() for value in state.values()]
        ),
        "workspace": None,
        "device_peak": device,
        "process_peak": host,
    }
    if device is not None:
        known = sum(value or 0 for kind, value in kinds.items() if not kind.endswith("_peak"))
        kinds["workspace"] = max(0, device - known)
    return kinds


def _bytes(values: Sequence[Any]) -> int:
    """Bytes of tensors, with this rank's part of the sharded ones."""
    parts = [own_part(one) for one in values if isinstance(one, torch.Tensor)]
    return sum(one.numel() * one.element_size() for one in parts)


def _overlap(observed: Observed) -> dict[str, Any] | None:
    """Communication statistics of torch's DistributedDataParallel; None if something else communicates."""
    logged: dict[str, Any] = getattr(observed.wrapped, "_get_ddp_logging_data", dict)()
    names = ("avg_backward_comm_time", "avg_backward_compute_comm_overlap_time")
    communication, overlapped = (logged.get(name) for name in names)
    if not communication:
        return None
    return {
        "communication_seconds": communication / 1e9,
        "overlapped": overlapped / communication,
        "buckets": [
            int(size) for size in str(logged.get("bucket_sizes", "")).split(", ") if size.isdecimal()
        ],
    }


if __name__ == "__main__":
    rank.main(profiled)
