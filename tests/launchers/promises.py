"""What a rank does to show that its launcher keeps the promises of `Parallel`: the program of one rank, started
by the launcher itself. `python -m tests.launchers.promises ASKED.json` does so for every job of the file, and leaves
`<rank>.pt` in the folder of each."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import cattrs
import torch

from tests.launchers import faults
from tests.references.configs import resnet
from train_bench.core.job import Job, Precision
from train_bench.core.sharded_tensors import whole
from train_bench.errors import LaunchError
from train_bench.progress import EvalSchedule
from train_bench.references.parts.optimizers import SGD
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.task import Task
from train_bench.run import replicas
from train_bench.run.rank_state import end_process
from train_bench.warm_up import without_trace

BATCH = 8


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, 4, generator=generator), torch.randn(BATCH, 1, generator=generator)


def convolution(seed):
    """A model with a buffer and a weight whose memory is not contiguous."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 2, 2)),
        torch.nn.Conv2d(1, 3, 1),
        torch.nn.Conv2d(3, 2, 2),
        torch.nn.Flatten(),
        torch.nn.Linear(2, 1),
    ).to(memory_format=torch.channels_last)
    model.register_buffer("statistic", torch.full((3,), float(seed)))
    return model


def weights(model):
    """All of them, on every rank."""
    with held(list(model.parameters())):
        return torch.cat([whole(parameter).flatten() for parameter in model.parameters()])


def held(parameters):
    """While ZeRO stage 3 has divided them, a context in which they are whole."""
    if all(parameter.numel() for parameter in parameters):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(parameters)


def one_step(parallel, forward, *, micro_batches=1, clip_norm=None):
    inputs, targets = (tensor.chunk(parallel.size)[parallel.rank] for tensor in batch())
    parts = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True))
    for index, (x, y) in enumerate(parts):
        with parallel.forward(last_microbatch=index == micro_batches - 1):
            loss = torch.nn.functional.mse_loss(forward(x).float(), y) / micro_batches
            parallel.backward(loss)
    return parallel.step(clip_norm=clip_norm)


def training(parallel, *, micro_batches=1, clip_norm=None):
    """Four steps with momentum and decay, after a warm-up that is undone; the rate is changed before each in
    the optimizer that the reference made. Ranks start from different weights."""
    model = convolution(parallel.rank)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}]
    groups.append({"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0})
    optimizer = SGD(groups, lr=0.0, momentum=0.9)
    forward = parallel.wrap(model, optimizer, gradient_accumulation_steps=micro_batches)

    def step(rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        while not one_step(parallel, forward, micro_batches=micro_batches, clip_norm=clip_norm):
            assert parallel.precision is Precision.fp16, "only an overflow in fp16 is tried again"

    start = weights(model)
    with without_trace(model, optimizer, parallel):
        step(0.5)
        step(0.5)
        assert not torch.allclose(weights(model), start)
    assert torch.equal(weights(model), start)
    for rate in (0.1, 0.05, 0.2, 0.0):
        step(rate)
    return weights(model)


def collectives(parallel):
    model = convolution(parallel.rank)
    parallel.wrap(model, SGD(model.parameters(), lr=0.1))
    started = model.statistic.clone()
    model.statistic.fill_(float(parallel.rank))
    parallel.sync_buffers()
    parallel.barrier()
    return {
        "started": started,
        "buffer": model.statistic.clone(),
        "sum": parallel.sum(torch.tensor(parallel.rank + 1.0)),
        "counts": parallel.sum(torch.tensor([parallel.rank, 2])),
        "mean": parallel.mean(torch.tensor(parallel.rank + 1.0)),
        "gathered": parallel.gather_objects({"rank": parallel.rank}),
        "told": parallel.from_rank_zero(f"from {parallel.rank}"),
    }


def local_parameter(parallel):
    """A table that each rank has for itself."""
    model = torch.nn.ModuleDict({"table": torch.nn.Linear(4, 1), "dense": torch.nn.Linear(4, 1)})
    torch.nn.init.constant_(model["table"].weight, float(parallel.rank))
    optimizer = SGD(model.parameters(), lr=0.0)
    model.forward = lambda x: model["table"](x) + model["dense"](x)
    wrapped = parallel.wrap(model, optimizer, local_params=model["table"].parameters())
    with parallel.forward():
        parallel.backward((wrapped(torch.ones(1, 4)) * (parallel.rank + 1)).sum())
    table = model["table"].weight
    seen = {"table": table.detach().clone(), "gradient": table.grad.clone()}
    parallel.step()
    return seen


def batch_norm(parallel):
    """Why there are no statistics over two ranks."""
    model = torch.nn.BatchNorm1d(3)
    assert parallel.batch_norm(model, ranks=1) is model
    return refused(lambda: parallel.batch_norm(model, ranks=2))


def checkpoint(parallel):
    """Continue from what another process has saved: None, or why that cannot be."""
    model = torch.nn.Linear(4, 1)
    parallel.wrap(model, SGD(model.parameters(), lr=0.1))
    parallel.load_state_dict(parallel.state_dict())
    saved = {key: "another" if key == "process" else value for key, value in parallel.state_dict().items()}
    return refused(lambda: parallel.load_state_dict(saved))


def refused(act):
    """The sentence with which `act` is refused, None if it is not."""
    try:
        act()
    except LaunchError as error:
        return str(error)
    return None


def overflow(parallel):
    """In fp16, a step whose loss overflows on the last rank alone, and one that does not."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    wrapped = parallel.wrap(model, SGD(model.parameters(), lr=0.1))
    before, scale = weights(model), parallel.state_dict()["scale"]
    last = parallel.rank == parallel.size - 1
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 60000.0 if last else 1.0)).float().sum() * 1e10)
    skipped = not parallel.step()
    unchanged = torch.equal(weights(model), before)
    halved = parallel.state_dict()["scale"] == scale / 2
    with parallel.forward():
        parallel.backward(wrapped(torch.ones(1, 4)).float().sum() * 1e-4)
    return {"skipped": skipped, "unchanged": unchanged, "halved": halved, "went on": bool(parallel.step())}


def compared_with_faults(parallel, job):
    """What is found when averages are taken away, and for ZeRO, when its pieces are."""
    with faults.no_average(job.launcher):
        found = {"not averaged": compared(parallel)}
        if job.launcher_config.get("zero_stage") in (1, 2):
            with faults.no_gather():
                found["not gathered"] = compared(parallel)
    return found


def compared(parallel):
    """What is found when ranks have trained."""
    training(parallel)
    return replicas.compare(parallel)


def dtypes(parallel):
    model = torch.nn.Linear(4, 1)
    wrapped = parallel.wrap(model, SGD(model.parameters(), lr=0.1))
    with parallel.forward():
        loss = wrapped(batch()[0])
        parallel.backward(loss.float().sum())
    parallel.step()
    with parallel.inference():
        outputs = wrapped(batch()[0])
    return {
        "forward": str(loss.dtype),
        "inference": str(outputs.dtype),
        "weight": str(model.weight.dtype),
        "no gradients": not outputs.requires_grad,
    }


class Listening:
    """A `Parallel` that notes the losses that pass through it."""

    def __init__(self, parallel):
        self._parallel = parallel
        self.losses = []

    def __getattr__(self, name):
        return getattr(self._parallel, name)

    def backward(self, loss):
        self.losses.append(loss.detach().clone())
        self._parallel.backward(loss)


def first_epoch(parallel, digits):
    """The benchmark itself: every loss of the first epoch, its accuracy and the weights after it."""
    config: Config = resnet("resnet_mini")
    config.data_dir = digits
    listening = Listening(parallel)
    task = Task(config)
    task.build(7, listening)
    listening.losses.clear()
    task.open_data()
    epoch = EvalSchedule(first=1, period=1, until=1, samples_per_unit=config.train_samples).marks()
    task.train_until(epoch[0])
    losses = parallel.mean(torch.stack(listening.losses))
    quality = task.evaluate().metrics["top1"]
    return {"losses": losses, "top1": quality, "weights": weights(task.model)}


def promises(parallel, job, digits):
    """All that is asked of this rank under one configuration of the launcher."""
    result = {"size": parallel.size, "precision": dtypes(parallel)}
    if job.precision is Precision.fp16:
        result |= {"overflow": overflow(parallel)}
    if job.precision is Precision.fp32:
        result |= {
            "collectives": collectives(parallel),
            "batch norm": batch_norm(parallel),
            "checkpoint": checkpoint(parallel),
            "first epoch": first_epoch(parallel, digits),
        }
        if job.launcher == "deepspeed" or job.launcher_config.get("shard"):
            result["local"] = refused(lambda: local_parameter(parallel))
        else:
            result["local"] = local_parameter(parallel)
    if job.precision is not Precision.bf16:
        result |= {
            "training": training(parallel),
            "accumulated": training(parallel, micro_batches=2),
            "clipped": training(parallel, clip_norm=0.01),
        }
        result["replicas"] = {"shared": compared(parallel)}
    if job.precision is Precision.fp32:
        result["replicas"] |= compared_with_faults(parallel, job)
    return result


def main():
    asked = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    for number, one in enumerate(asked["jobs"]):
        job = cattrs.structure(one, Job)
        parallel = importlib.import_module(f"train_bench.launchers.{job.launcher}.parallel").join(job)
        if number == 0:  # the ranks have met, and stay together for all jobs
            torch.distributed.init_process_group = lambda *args, **options: None
        torch.save(promises(parallel, job, asked["digits"]), job.folder / f"{parallel.rank}.pt")
    parallel.leave()
    end_process()


if __name__ == "__main__":
    main()
