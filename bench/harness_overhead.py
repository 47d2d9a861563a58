"""Overhead of the harness: the same training through it and as a bare loop without it.

Both train the same model on the same batches with the same seed, device, threads, numerics and loader for the
same number of epochs, with an evaluation after each. One goes through harness, log, `Task` and `Parallel`;
the other is a plain loop in torch. They alternate in one process; the last line is the median ratio of
their timed windows.

    python bench/harness_overhead.py [PAIRS] [EPOCHS] [TRACKER ...]

With trackers (wandb, tensorboard) campaigns of one run that they follow alternate with campaigns that nobody
follows, and the ratio is that of their timed windows.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cattrs
import torch
from planned import first, one_run
from rich.console import Console
from torch.nn import functional
from torch.utils.data import DataLoader

from train_bench.campaign import runner
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job
from train_bench.launchers.inline import parallel as inline
from train_bench.observers.observer import Observers
from train_bench.observers.terminal import Terminal
from train_bench.observers.tracking import Tracking
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.references.parts import stream
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.layout import layout_of
from train_bench.references.resnet import data, examples
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.model import ResNet
from train_bench.references.resnet.recipe import optimizer_of, schedule_of, steps_per_epoch
from train_bench.references.resnet.task import Task
from train_bench.run.events import Log, wall_clock_ms
from train_bench.run.timed_run import timed_run
from train_bench.seeds import derive
from train_bench.warm_up import without_trace

Timed = Callable[[int], float]

TRACKERS = sys.argv[3:]
VARIANT = "resnet_mini"
SEED = 1


def main() -> None:
    """Measure and print."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    with tempfile.TemporaryDirectory() as scratch:
        overrides = [f"benchmark={VARIANT}", "device=cpu", f"output={scratch}/none"]
        plan = one_run(overrides, first(epochs))
        job = replace(plan.jobs[0], folder=Path(scratch))
        config = cattrs.structure(job.config, Config)
        if TRACKERS:
            _alternate(
                "with trackers",
                lambda number: tracked(plan, Path(scratch) / f"{number}_with", trackers=TRACKERS),
                lambda number: tracked(plan, Path(scratch) / f"{number}_without", trackers=()),
                pairs,
            )
        else:
            _alternate(
                "harness", lambda _: through_harness(config, job), lambda _: bare(config, job, epochs), pairs
            )


def _alternate(name: str, ours: Timed, bare: Timed, pairs: int) -> None:
    """Time both by turns, the first pair for nothing, and print the ratio of each pair and their median."""
    ratios = []
    for pair in range(-1, pairs):
        seconds = {}
        for side in (ours, bare) if pair % 2 == 0 else (bare, ours):
            seconds[side] = side(pair)
        if pair >= 0:
            ratios.append(seconds[ours] / seconds[bare])
            print(f"pair {pair + 1:2}: {name} {seconds[ours]:.3f} s, bare {seconds[bare]:.3f} s", end="")
            print(f", ratio {ratios[-1]:.4f}", flush=True)
    spread = statistics.quantiles(ratios, n=4)
    print(f"{pairs} pairs of {VARIANT}; quartiles {spread[0]:.4f} to {spread[2]:.4f}")
    print(f"ratio {statistics.median(ratios):.4f}")


def through_harness(config: Config, job: Job) -> float:
    """Seconds between the log's `run_start` and `run_stop`."""
    log = Log(job.partial_log, wall_clock_ms())
    task = Task(config)
    timed_run(task, job, inline.join(job), log)
    task.close()
    log.close()
    return _window(job.partial_log)


def bare(config: Config, job: Job, epochs: int) -> float:
    """Seconds of the same training in a plain loop, from opening the data to the last evaluation."""
    torch.manual_seed(derive(SEED, "weights"))
    parallel = inline.join(job)
    layout = layout_of(config.model.channels_last, parallel)
    model = ResNet(config.model).to(memory_format=layout)
    optimizer, schedule = optimizer_of(model, config.hyperparameters), schedule_of(config)
    means = torch.tensor(config.data.means).view(1, 3, 1, 1)
    batch_size = config.hyperparameters.global_batch_size

    def train_step(step: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        logits = model((images - means).contiguous(memory_format=layout))
        functional.cross_entropy(logits, labels, label_smoothing=config.label_smoothing).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with without_trace(model, optimizer, parallel):
        for _ in range(config.warm_up_steps):
            train_step(0, *examples.synthetic(config, batch_size))

    start = time.perf_counter()
    train, val = data.open_images(config)
    sampler = stream.Sampler(
        order=stream.Shuffled(samples=len(train.labels), seed=SEED),
        global_batch_size=batch_size,
        microbatches=1,
        rank=0,
        ranks=1,
    )
    training = examples.TrainingSet(
        images=train, data=config.data, generators=Generators(derive(SEED, "augmentation"))
    )
    batches = iter(DataLoader(training, batch_sampler=sampler))
    evaluation = DataLoader(
        examples.EvaluationSet(images=val, data=config.data),
        batch_sampler=stream.evaluation_order(len(val.labels), config.data.eval_batch_size, 0, 1),
    )
    step = 0
    for epoch in range(epochs):
        model.train()
        while step * batch_size < (epoch + 1) * len(train.labels):
            train_step(step, *next(batches))
            step += 1
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in evaluation:
                logits = model((images - means).contiguous(memory_format=layout))
                correct += int((logits.argmax(dim=1) == labels).sum())
    seconds = time.perf_counter() - start
    assert correct > 0
    assert step >= epochs * steps_per_epoch(config) - epochs
    return seconds


def tracked(plan: Plan, folder: Path, *, trackers: Sequence[str]) -> float:
    """Seconds between `run_start` and `run_stop` of a campaign of one run that these trackers follow."""
    plan = replace(plan, jobs=(replace(plan.jobs[0], folder=folder),))
    Campaign.of(plan).write()
    followers = [
        Tracking(
            name,
            plan.jobs,
            {},
            rcp_folders=discover.rcp_folders(),
            online=False,
            limit_seconds=60.0,
            say=print,
        )
        for name in trackers
    ]
    watcher = Observers([Terminal(Console(quiet=True)), *followers])
    for _ in runner.run_each(Campaign.of(plan), watcher, retry_failed=False):
        pass
    return _window(plan.jobs[0].result_file)


def _window(log: Path) -> float:
    lines = [json.loads(line.partition(" ")[2]) for line in log.read_text().splitlines()]
    times = {line["key"]: line["time_ms"] for line in lines}
    return (times["run_stop"] - times["run_start"]) / 1000


if __name__ == "__main__":
    main()
