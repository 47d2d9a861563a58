"""What real steps compute and hold, found in other ways than a dry run's."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from tests.references.configs import composed
from train_bench.check.one_rank import OneRank
from train_bench.core.job import Device, Precision
from train_bench.dry_run.step import Step, step_of
from train_bench.plan import discover

MINIS = [f"{name}_mini" for name in discover.references()]
MEASURED = "the iteration that is measured"


def dry(config: Any, **how: Any) -> Step:
    """A dry step of a configuration, of one rank in fp32 unless it is said."""
    how = {"ranks": 1, "device": Device.cpu, "precision": Precision.fp32} | how
    return step_of(discover.task(config.reference), config, **how)


@cache
def dry_mini(name: str) -> Step:
    """Of a mini as it is; several tests ask."""
    return dry(mini(name))


@contextmanager
def task_of(config: Any):
    """The task with its weights."""
    task = discover.task(config.reference)(config)
    task.build(1, OneRank())
    yield task
    task.close()


def mini(name: str, *overrides: str) -> Any:
    """Without warm-up and, as in a dry run, without a file of weights."""
    config = composed(name, "warm_up_steps=0", *overrides)
    if hasattr(config, "start_weights"):
        config.start_weights = None
    return config


def counted(task: Any, samples: int) -> FlopCounterMode:
    """torch's count of an iteration."""
    batch = task.synthetic(samples)
    counter = FlopCounterMode(display=False)
    with counter:
        task.iterate(batch)
    return counter


def peak_of(config: Any, samples: int) -> int:
    """Bytes that torch's allocator has given out when they were most in the second of two iterations, with the weights
    and all else that was made before."""

    def iterations() -> Iterator[Callable[[], None]]:
        with task_of(config) as task:
            batch = task.synthetic(samples)
            task.iterate(batch)
            yield lambda: task.iterate(batch)

    return most_allocated(iterations())


def allocated(step: Callable[[], None]) -> int:
    """Bytes that torch's allocator has given out when they were most in `step`, above those before it."""
    return most_allocated(iter([step]))


def most_allocated(steps: Iterator[Callable[[], None]]) -> int:
    """Bytes that torch's allocator has given out when they were most in the one step that `steps` has, from the trace
    of torch's profiler, which begins before it is made. What collectives and their threads ask for does not count: gloo
    gathers into memory of its own before it copies, which NCCL does not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        for step in steps:
            with record_function(MEASURED):
                step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    measured = next(event for event in events if event.get("name") == MEASURED)
    collectives = [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X" and event["name"].startswith("c10d::")
    ]
    held = most = 0
    of_others: set[int] = set()
    allocations = [event for event in events if event.get("name") == "[memory]"]
    for event in sorted(allocations, key=lambda event: event["ts"]):
        size, address = event["args"]["Bytes"], event["args"]["Addr"]
        inside = any(begin <= event["ts"] <= end for begin, end in collectives)
        if size > 0 and (inside or event["tid"] != measured["tid"]):
            of_others.add(address)
        elif size < 0 and address in of_others:
            of_others.remove(address)
        else:
            held += size
        if event["ts"] >= measured["ts"]:
            most = max(most, held)
    return most


def lstm_flop(config: Any) -> int:
    """Forward FLOP of a sample in the LSTMs of RNN-T, which torch's counter leaves out: two products with the weights
    of four gates, for every frame or label."""
    model, data = config.model, config.data
    seconds = config.hyperparameters.data_train_max_duration
    frames = round(seconds / data.hop) // data.frame_stack
    joined = -(-frames // model.time_stack)
    labels = round(seconds * 5) + 1
    layers = [(frames, data.frame_stack * data.mel_filters, model.encoder)]
    layers += [(frames, model.encoder, model.encoder)] * (model.pre_rnn - 1)
    layers += [(joined, model.time_stack * model.encoder, model.encoder)]
    layers += [(joined, model.encoder, model.encoder)] * (model.post_rnn - 1)
    layers += [(labels, model.prediction, model.prediction)] * model.prediction_rnn
    return sum(2 * steps * 4 * units * (inputs + units) for steps, inputs, units in layers)


def local_batch(config: Any) -> int:
    """Samples of a micro-batch of the only rank."""
    hyperparameters = config.hyperparameters
    return hyperparameters.global_batch_size // hyperparameters.gradient_accumulation_steps
