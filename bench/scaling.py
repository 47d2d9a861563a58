"""Scaling of throughput from one rank to two for each launcher, against bare DistributedDataParallel.

A ResNet larger than that of the mini benchmark is trained for a fixed number of epochs, with one evaluation at
the end: by `train-bench` below every launcher of `launchers/` that can start here, and by a plain loop below
torchrun that shares model, loader and hyperparameters and nothing else. What is measured is the time from
`run_start` to `run_stop`, and the time from the command to `run_start`. The rounds alternate; medians are
printed. The last line is the smallest ratio of harness to bare at the same number of ranks.

    python bench/scaling.py [ROUNDS] [EPOCHS]

With a GPU, the model is ResNet-50 at 224 pixels in bf16.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import cattrs
import torch
import torch.distributed as dist
from planned import one_run
from rich.console import Console
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from train_bench.campaign import runner
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job, read_job
from train_bench.errors import TrainBenchError
from train_bench.launchers.parts.ddp import BUFFERS_STAY_LOCAL, TorchParallel
from train_bench.observers.terminal import Terminal
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.progress import EvalSchedule
from train_bench.references.parts import stream
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.layout import layout_of
from train_bench.references.resnet import data, examples
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.model import ResNet
from train_bench.references.resnet.recipe import optimizer_of, schedule_of
from train_bench.run.freed_memory import keep_freed_memory
from train_bench.seeds import derive

VARIANT = "resnet_mini"
RANKS = (1, 2)
GPU = torch.cuda.is_available()
LARGER = [
    f"benchmark.{option}"
    for option in (
        (
            *("hyperparameters.global_batch_size=256", "data.workers=6", "data.image_size=224"),
            *("data.eval_resize=256", "model.stem_width=64", "model.stem_kernel=7", "model.stem_pool=true"),
            *("model.widths=[64,128,256,512]", "model.blocks=[3,4,6,3]", "model.strides=[1,2,2,2]"),
            "model.expansion=4",
        )
        if GPU
        else ("model.widths=[48,96,192]", "data.image_size=32", "data.eval_resize=40")
    )
]


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else (40 if GPU else 2)
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    starts: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        plans = _plans(epochs, Path(scratch))
        for number in range(rounds):
            for (name, ranks), plan in list(plans.items()):
                try:
                    took, start = through_harness(plan, Path(scratch) / f"{name}_{ranks}_{number}")
                except TrainBenchError as error:
                    print(f"{name}, {ranks} rank(s): skipped. {error}", flush=True)
                    del plans[name, ranks]
                    continue
                seconds[name, ranks].append(took)
                starts[name, ranks].append(start)
            for ranks in sorted({ranks for _, ranks in plans}):
                folder = Path(scratch) / f"bare_{ranks}_{number}"
                plan = next(plan for (_, of_plan), plan in plans.items() if of_plan == ranks)
                seconds["bare", ranks].append(_start_bare(plan, folder))
    _print(seconds, starts, samples=epochs * plan.jobs[0].config["train_samples"])


def through_harness(plan: Plan, folder: Path) -> tuple[float, float]:
    """Seconds between the log's `run_start` and `run_stop`, and from the command to `run_start`."""
    plan = _into(plan, folder)
    command = time.time()
    for _ in runner.run_each(Campaign.of(plan), Terminal(Console(quiet=True)), retry_failed=False):
        pass
    lines = plan.jobs[0].result_file.read_text().splitlines()
    times = {line["key"]: line["time_ms"] / 1000 for line in (json.loads(text[9:]) for text in lines)}
    return times["run_stop"] - times["run_start"], times["run_start"] - command


def _start_bare(plan: Plan, folder: Path) -> float:
    """Seconds of the same training in a plain loop."""
    job = _into(plan, folder).jobs[0]
    agent = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.nproc_per_node}")
    command = [sys.executable, *agent, __file__, "--bare", str(job.folder / "plan.json")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(discover.ROOT)}
    completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(completed.stdout)


def bare(job: Job) -> float:
    """One rank of the plain loop: seconds from opening the data to the end of the last evaluation."""
    config: Config = cattrs.structure(job.config, Config)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if GPU else torch.device("cpu")
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    keep_freed_memory()  # as a rank
    if GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if GPU else "gloo")
    torch.manual_seed(derive(job.seed, "weights"))
    numerics = TorchParallel(job, rank=0, local_rank=rank, size=1)  # of this rank; opens no group
    layout = layout_of(config.model.channels_last, numerics)
    model = ResNet(config.model).to(device).to(memory_format=layout)
    optimizer, schedule = optimizer_of(model, config.hyperparameters), schedule_of(config)
    local = [rank] if GPU else None
    wrapped = DistributedDataParallel(
        model, device_ids=local, gradient_as_bucket_view=True, **BUFFERS_STAY_LOCAL
    )
    means = torch.tensor(config.data.means, device=device).view(1, 3, 1, 1)
    batch_size = config.hyperparameters.global_batch_size

    def predicted(images: torch.Tensor) -> torch.Tensor:
        inputs = (images.to(device, non_blocking=True) - means).contiguous(memory_format=layout)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=GPU):
            return wrapped(inputs)

    def train_step(step: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        loss = functional.cross_entropy(
            predicted(images).float(),
            labels.to(device, non_blocking=True),
            label_smoothing=config.label_smoothing,
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(config.warm_up_steps):
        train_step(0, *examples.synthetic(config, batch_size // ranks))
    dist.barrier()

    start = time.perf_counter()
    train, val = data.open_images(config)
    sampler = stream.Sampler(
        order=stream.Shuffled(samples=len(train.labels), seed=job.seed),
        global_batch_size=batch_size,
        microbatches=1,
        rank=rank,
        ranks=ranks,
    )
    training = examples.TrainingSet(
        images=train, data=config.data, generators=Generators(derive(job.seed, "augmentation"))
    )
    batches = iter(DataLoader(training, batch_sampler=sampler))
    step = 0
    while step * batch_size < job.schedule.marks()[-1].count:
        train_step(step, *next(batches))
        step += 1
    wrapped.eval()
    evaluation = DataLoader(
        examples.EvaluationSet(images=val, data=config.data),
        batch_sampler=stream.evaluation_order(len(val.labels), config.data.eval_batch_size, rank, ranks),
    )
    correct = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad():
        for images, labels in evaluation:
            correct += (predicted(images).argmax(dim=1) == labels.to(device)).sum()
    dist.all_reduce(correct)
    assert int(correct) > 0
    seconds = time.perf_counter() - start
    dist.destroy_process_group()
    return seconds


def _plans(epochs: int, scratch: Path) -> dict[tuple[str, int], Plan]:
    """One run for every launcher and number of ranks that can be planned here; the others are told."""

    def end(schedule: EvalSchedule) -> EvalSchedule:
        return replace(schedule, first=epochs, until=epochs)

    plans = {}
    for name in discover.launchers():
        for ranks in RANKS:
            overrides = [f"benchmark={VARIANT}", f"launcher={name}", f"launcher.nproc_per_node={ranks}"]
            if GPU:
                overrides.append("precision=bf16")
            try:
                plans[name, ranks] = one_run([*overrides, *LARGER, f"output={scratch / 'none'}"], end)
            except TrainBenchError as error:
                print(f"{name}, {ranks} rank(s): skipped. {error}", flush=True)
    return plans


def _into(plan: Plan, folder: Path) -> Plan:
    """The plan, written into a folder of its own."""
    plan = replace(plan, jobs=(replace(plan.jobs[0], folder=folder),))
    Campaign.of(plan).write()
    return plan


def _print(
    seconds: dict[tuple[str, int], list[float]], starts: dict[tuple[str, int], list[float]], *, samples: int
) -> None:
    speed = {key: samples / statistics.median(values) for key, values in seconds.items()}
    ratios = []
    for (name, ranks), value in sorted(speed.items()):
        line = f"{name:10} {ranks} rank(s)  {value:8.1f} samples/s"
        if ranks > 1 and (name, 1) in speed:
            line += f"  {value / speed[name, 1]:.2f} times one rank"
        if name != "bare":
            ratios.append(value / speed["bare", ranks])
            line += f"  harness/bare {ratios[-1]:.4f}"
            line += f"  command to run_start {statistics.median(starts[name, ranks]):.1f} s"
        print(line)
    print(f"ratio {min(ratios):.4f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        seconds = bare(read_job(Path(sys.argv[2]), 0))
        if os.environ["RANK"] == "0":
            print(seconds)
    else:
        main()
