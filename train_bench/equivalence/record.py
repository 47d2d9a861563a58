"""Recording process of a rank: `python -m train_bench.equivalence.record PLAN.json INDEX`.

Every rank leaves `rank_<rank>.npz` and `rank_<rank>.json` in the folder of its job. The options of the job say what is
recorded:

steps    iterations of training
start    a file of weights to begin with, by name; None: those of the seed
double   weights and arithmetic in double precision
unit     relative perturbation of every layer output, as rounding in another order would make it
draw     index of the perturbation, 0 by default
seeds    number of seeds whose initial weights are recorded
data     "real", or "synthetic": synthetic batches, if the data are missing
given    keep inputs and outputs of the model in the first step whole, for third-party models
model    MODULE:FUNCTION of such a model, which is recorded instead; see `foreign.py`
whole    also the rates of the whole run, the evaluation and steps of the optimizer from given gradients
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from train_bench.check.one_rank import OneRank
from train_bench.core.job import Job
from train_bench.core.sharded_tensors import part
from train_bench.equivalence import foreign, observe, recording
from train_bench.equivalence.initial import Initial
from train_bench.equivalence.observe import Notes, Observer, ObservingParallel, StopRecording, as_parallel
from train_bench.parallel import Parallel, Stepped
from train_bench.progress import Mark, Unit
from train_bench.run import rank
from train_bench.seeds import derive
from train_bench.task import Task

MOST_STEPS = 20_000
"""Steps of the schedule."""

GRADIENTS = (1.0, 1e-6, 1e3, 0.0, 1e-9, 1.0)
"""Deviations of the gradients that an optimizer is given."""


def record(job: Job, task: Task, parallel: Parallel) -> None:
    """Record one rank."""
    options = dict(job.work_options)
    notes = foreign.recorded(job, options) if options.get("model") else recorded(job, task, parallel, options)
    write(notes, job.folder, parallel.rank)


def write(notes: Notes, folder: Path, rank: int) -> None:
    """Write a recording to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"rank_{rank}.npz").open("wb") as file:
        np.savez(file, **notes.arrays)  # type: ignore[arg-type]
    (folder / f"rank_{rank}.json").write_text(json.dumps(recording.written(notes.facts)))


def recorded(job: Job, task: Any, parallel: Parallel, options: dict[str, Any]) -> Notes:
    """Recording of this rank, of a task that is not built yet."""
    notes = Notes()
    notes.facts.update(rank=parallel.rank, ranks=parallel.size, steps=options["steps"])
    compiled = str(job.config.get("compile", "off")).lower() not in ("off", "false")
    observer = Observer(parallel, notes, hooked=not compiled, given=bool(options.get("given")))
    task.build(job.seed, as_parallel(observer))
    weights = {**dict(observer.model.named_parameters()), **dict(observer.model.named_buffers())}
    for name, tensor in weights.items():
        if observer._mine(name):
            notes.record(f"parameters/{name}", tensor, whole=True)
    notes.facts["trained"] = [name for name, _ in observer.model.named_parameters()]
    others = _others(task, observer)
    if options.get("start"):
        _start_from(Path(options["start"]), observer, others)
    double = bool(options.get("double"))
    drawn = derive(job.seed, "rounding", options.get("draw", 0))
    for model in (observer.model, *others.values()):
        if double:
            observe.widen(model)
        if options.get("unit"):
            observe.round_otherwise(model, options["unit"], drawn, parallel.rank)
    observer.begin(others)
    with observe.numerics(double):
        _train(job, task, observer, options)
    observer.state("last")
    for prefix, model in _others(task, observer).items():
        for name, weight in model.named_parameters():
            notes.record(f"statistics/last/{prefix}{name}", weight)
    if options["data"] == "real":
        if not double:
            before = observer.answered  # minigo runs the model in self-play
            notes.facts["quality"] = dict(task.evaluate().metrics)
            notes.facts["answered"] = observer.answered - before
        _orders(task, notes)
    if options.get("whole"):
        _initial(job, task, notes, options["seeds"])
        _schedule(job, task, notes)
        _given_gradients(observer, notes)
    return notes


def _others(task: Any, observer: Observer) -> dict[str, torch.nn.Module]:
    """Models that a task keeps besides the trained one, such as an average of its weights."""
    trained = {id(module) for module in observer.model.modules()}
    return {
        f"{name.strip('_')}.": value
        for name, value in vars(task).items()
        if isinstance(value, torch.nn.Module)
        and id(value) not in trained
        and not _holds(value, observer.model)
    }


def _holds(outer: torch.nn.Module, model: torch.nn.Module) -> bool:
    return any(module is model for module in outer.modules())


def _start_from(file: Path, observer: Observer, others: dict[str, torch.nn.Module]) -> None:
    """Load weights and buffers from a file, also into other models that began with those of the trained one."""
    found = np.load(file, allow_pickle=False)
    own = {**dict(observer.model.named_parameters()), **dict(observer.model.named_buffers())}
    copies = []
    for other in others.values():
        theirs = {**dict(other.named_parameters()), **dict(other.named_buffers())}
        if theirs.keys() == own.keys() and all(torch.equal(theirs[name], own[name]) for name in own):
            copies.append(theirs)
    sizes = {name: tensor.numel() for name, tensor in own.items()}
    if any(name not in found or found[name].size != size for name, size in sizes.items()):
        observer.notes.facts["started"] = False
        return
    with torch.no_grad():
        for name, tensor in own.items():
            values = torch.from_numpy(found[name]).reshape(tensor.shape)
            for each in (tensor, *(one[name] for one in copies)):
                each.copy_(part(values, each))
    parallel = observer._parallel
    parallel.load_state_dict(
        parallel.state_dict()
    )  # an optimizer that keeps weights of its own takes them over


def _train(job: Job, task: Any, observer: Observer, options: dict[str, Any]) -> None:
    steps = options["steps"]
    batch_size = job.config["hyperparameters"]["global_batch_size"]
    if options["data"] == "synthetic":
        accumulated = job.config["hyperparameters"]["gradient_accumulation_steps"]
        batch = task.synthetic(batch_size // (observer._parallel.size * accumulated))
        for _ in range(steps):
            task.iterate(batch)
        return
    task.open_data()
    if job.unit is not Unit.GENERATION:
        if not options.get("double"):
            with torch.random.fork_rng(devices=()), observer.peek():
                task.evaluate()
        task.train_until(_mark(steps * batch_size))
        return
    proper = observer.step

    def step(**named: Any) -> Stepped:
        if observer.steps == steps:
            raise StopRecording
        return proper(**named)

    observer.step = step  # type: ignore[method-assign]
    try:
        task.train_until(_mark(1))
    except StopRecording:
        for group in observer.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = None
    observer.step = proper  # type: ignore[method-assign]


def _mark(count: int) -> Mark:
    return Mark(count=count, epoch_num=1, first_epoch_num=1, epoch_count=1)


def _orders(task: Any, notes: Notes) -> None:
    taken = task.samples_taken()
    for name, batches in (("order", taken.order), ("evaluated", taken.evaluation)):
        notes.arrays[name] = np.concatenate([*batches, np.empty(0, np.int64)]).astype(np.int64)
        notes.arrays[f"{name}_lengths"] = np.array([len(batch) for batch in batches], dtype=np.int64)


def _another(task: Any) -> Any:
    """A task of the same configuration without preparation for speed."""
    config = copy.deepcopy(task.config)
    for name, value in (("compile", False), ("warm_up_steps", 0)):
        if hasattr(config, name):
            setattr(config, name, value)
    return type(task)(config)


def _initial(job: Job, task: Any, notes: Notes, seeds: int) -> None:
    """Some initial values of every tensor, for many seeds, and its size."""
    initial = Initial()
    for number in range(seeds):
        other, parallel = _another(task), OneRank()
        other.build(derive(job.seed, "initial", number), parallel)
        initial.add(dict(parallel.model.named_parameters()))
        other.close()
    initial.note(notes)


def _schedule(job: Job, task: Any, notes: Notes) -> None:
    """Options of the groups at every step of the whole run, if the task can skip everything else."""
    if not hasattr(task, "skip"):
        return
    count = job.schedule.marks()[-1].count if math.isfinite(job.schedule.until) else 0
    steps = math.ceil(count / job.config["hyperparameters"]["global_batch_size"])
    if job.unit is Unit.GENERATION or not steps:
        steps = 2000
    other, option_notes = _another(task), Notes()
    observing = ObservingParallel(cast(Parallel, OneRank()), option_notes)
    other.build(job.seed, as_parallel(observing))
    option_notes.facts["options"] = []
    other.skip(min(steps, MOST_STEPS))
    other.close()
    changing: dict[str, list[list[float]]] = {}
    for groups in option_notes.facts["options"]:
        for key in groups[0]:
            row = [group.get(key) for group in groups]
            if all(isinstance(value, int | float) for value in row):
                changing.setdefault(key, []).append([float(value) for value in row])
    for key, rows in changing.items():
        notes.arrays[f"schedule/{key}"] = np.array(rows)
    notes.facts["schedule_groups"] = observing.groups


def _given_gradients(observer: Observer, notes: Notes) -> None:
    """Optimizer steps from given gradients, in double precision, from weights of deviation 1. Destroys the model's
    weights."""
    optimizer = observer.optimizer
    weights = dict(observer.model.named_parameters())
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    if notes.facts["rank"] or observer.divided or not all(id(weight) in held for weight in weights.values()):
        return
    optimizer.state.clear()
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * (group["lr"] / max(rates) if max(rates) > 0 else 1.0)
        group["lr"] = group["lr"].item() if isinstance(group["lr"], torch.Tensor) else group["lr"]
        if "steps" in group:
            group["steps"] = 0
    with torch.no_grad():
        for name, weight in weights.items():
            weight.data = _drawn(weight, name)
    observer.steps = observe.DETAILED  # its hook has nothing to record
    for step, deviation in enumerate(GRADIENTS):
        for name, weight in weights.items():
            weight.grad = deviation * _drawn(weight, f"{name} {step}")
        optimizer.step()
        for name, weight in weights.items():
            notes.record(f"optimizer/{step}/{name}", weight)


def _drawn(weight: torch.Tensor, purpose: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(derive(0, purpose))
    drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return drawn.to(weight.device).to(memory_format=_layout(weight))


def _layout(weight: torch.Tensor) -> Any:
    dims = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = dims.get(weight.dim())
    if layout is not None and weight.is_contiguous(memory_format=layout):
        return layout
    return torch.contiguous_format


if __name__ == "__main__":
    rank.main(record)
