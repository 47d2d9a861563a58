"""What the harness costs on the clock: the same training through it and as a bare loop without it.

Both train the same model on the same batches with the same seed, device, threads, numerics and loader for the
same number of epochs, with an evaluation after each. One goes through referee, log, `Task` and `Parallel`;
the other is a plain loop in torch. They alternate in one process; the last line is the median ratio of
their timed windows.

    python bench/harness_overhead.py [PAIRS] [EPOCHS]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch.nn import functional

from launchers.inline import parallel as inline
from references._parts.warm_up import without_trace
from references.resnet import data
from references.resnet.config import Config
from references.resnet.model import ResNet
from references.resnet.recipe import optimizer_of, schedule_of, steps_per_epoch
from references.resnet.task import Task
from train_bench.job import Device, Job, Precision
from train_bench.plan import discover
from train_bench.plan.config import register
from train_bench.progress import EvalSchedule, Unit
from train_bench.quality import Target, Threshold
from train_bench.run.events import Log, wall_clock_ms
from train_bench.run.timed_run import timed_run
from train_bench.seeds import derive

VARIANT = "resnet_mini"
SEED = 1


def main() -> None:
    """Measure and print."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    config = _config()
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        job = _job(config, epochs, Path(scratch))
        for pair in range(-1, pairs):
            first_harness = pair % 2 == 0
            seconds = {}
            for harness in (first_harness, not first_harness):
                seconds[harness] = through_harness(config, job) if harness else bare(config, job, epochs)
            if pair >= 0:
                ratios.append(seconds[True] / seconds[False])
                print(
                    f"pair {pair + 1:2}: harness {seconds[True]:.3f} s, bare {seconds[False]:.3f} s", end=""
                )
                print(f", ratio {ratios[-1]:.4f}", flush=True)
    spread = statistics.quantiles(ratios, n=4)
    print(f"{pairs} pairs of {epochs} epochs of {VARIANT}; quartiles {spread[0]:.4f} to {spread[2]:.4f}")
    print(f"ratio {statistics.median(ratios):.4f}")


def through_harness(config: Config, job: Job) -> float:
    """Seconds between the log's `run_start` and `run_stop`."""
    log = Log(job.growing_file, wall_clock_ms())
    task = Task(config)
    timed_run(task, job, inline.join(job), log)
    task.close()
    log.close()
    lines = [json.loads(line.partition(" ")[2]) for line in job.growing_file.read_text().splitlines()]
    times = {line["key"]: line["time_ms"] for line in lines}
    return (times["run_stop"] - times["run_start"]) / 1000


def bare(config: Config, job: Job, epochs: int) -> float:
    """Seconds of the same training in a plain loop, from opening the data to the last evaluation."""
    torch.manual_seed(derive(SEED, "weights"))
    layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
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

    with without_trace(model, optimizer, inline.join(job)):
        for _ in range(config.warm_up_steps):
            train_step(0, *data.synthetic(config, batch_size))

    start = time.perf_counter()
    train, val = data.open_images(config)
    order = data.Order(
        samples=len(train.labels),
        seed=SEED,
        global_batch_size=batch_size,
        microbatches=1,
        rank=0,
        ranks=1,
    )
    training = data.TrainingSet(images=train, data=config.data, seed=derive(SEED, "augmentation"))
    batches = iter(data.loader(training, order, config.data, torch.device("cpu")))
    evaluation = data.loader(
        data.EvaluationSet(images=val, data=config.data),
        data.evaluation_order(len(val.labels), config.data.eval_batch_size, 0, 1),
        config.data,
        torch.device("cpu"),
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


def _config() -> Config:
    register()
    with initialize_config_dir(str(discover.CONF), version_base="1.3"):
        asked = OmegaConf.to_object(compose("config", overrides=[f"benchmark={VARIANT}"]))
    config: Config = asked.benchmark
    folder = discover.cache() / config.benchmark
    data.prepare(config, folder, None)
    return replace(config, data_dir=str(folder))


def _job(config: Config, epochs: int, folder: Path) -> Job:
    """A job whose target cannot be reached, so that both train to the end of the schedule."""
    schedule = EvalSchedule(first=1, period=1, until=epochs)
    return Job(
        benchmark=config.benchmark,
        reference=config.reference,
        launcher="inline",
        launcher_config={},
        index=0,
        seed=SEED,
        nodes=1,
        nproc_per_node=1,
        threads_per_rank=None,
        device=Device.cpu,
        precision=Precision.fp32,
        drop_caches=False,
        start_limit_seconds=60.0,
        stall_limit_seconds=60.0,
        config=asdict(config),
        announcement={},
        target=Target(thresholds=(Threshold(metric="top1", value=2.0),)),
        unit=Unit.EPOCH,
        schedule=schedule.marks(samples_per_unit=config.train_samples or 1),
        folder=folder,
    )


if __name__ == "__main__":
    main()
