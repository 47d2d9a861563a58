"""Memory and losses of a decoder of 304 million parameters on ranks that shard it, over gloo on this CPU.

    python bench/studies/sharded_ranks.py [RANKS ...]

For 1, 2 and 4 ranks (or RANKS) with `launcher.shard=fsdp`: the most anonymous memory that a rank holds beyond its
start, in GB, while it builds, takes 20 steps, evaluates, saves and loads; what the dry plan expects of a step; the
losses, as their largest relative distance from those of the first line; whether start weights and the weights that
each number of ranks reads of the checkpoint of the last one are bit-equal. Some minutes and 6 GB on two cores.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from tests.dry_run.measured import dry
from tests.references.configs import llama31_8b
from tests.references.several_ranks import FromFile, start
from train_bench.core.sharded_tensors import whole
from train_bench.launchers.parts.ddp import whole_state
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.references.llama31_8b.task import Task

STEPS = 20
BATCH = 4
SHAPE = (
    *(
        "model.layers=24",
        "model.width=1024",
        "model.heads=16",
        "model.key_value_heads=4",
        "model.head_size=64",
    ),
    *("model.intermediate=2816", "model.vocabulary=16384", "warm_up_steps=0"),
    *("hyperparameters.max_sequence_length=32", f"hyperparameters.global_batch_size={BATCH}"),
    "hyperparameters.opt_learning_rate_warmup_steps=0",
)


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2."""


def config() -> Any:
    """Of the decoder."""
    return llama31_8b("llama31_8b_mini", *SHAPE)


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


@contextmanager
def peak(into: dict[str, float], phase: str, start: int) -> Iterator[None]:
    """The most that is held during the block, looked at every 5 ms."""
    seen, ended = [anonymous()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            seen.append(anonymous())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        into[phase] = (max(seen) - start) / 1e9


def digest(task: Any) -> str:
    """Of weights and optimizer state, gathered one by one."""
    found = sha256()
    for name, one in whole_state(task.model, task.optimizer, ()):
        found.update(name.encode() + whole(one).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def rank(number: int, folder: Path, ranks: int, saved: Path | None) -> None:
    """Everything, as one of `ranks`; `saved` is a checkpoint to be read."""
    parallel: Any = Sharded(folder, rank=number, size=ranks)
    task, held, found = Task(config()), {}, {}
    begun = anonymous()
    with peak(held, "build", begun):
        task.build(1, parallel)
    found["start"] = digest(task)
    losses = []
    with peak(held, "step", begun):
        for step in range(STEPS):
            batch = (task.synthetic(BATCH) + 7 * step) % task.config.model.vocabulary
            task.train_step(iter([batch.chunk(ranks)[number]]))
            losses.append(float(parallel.mean(task.last_loss)))
    with peak(held, "evaluate", begun):
        task._count(task.synthetic(1))
    with peak(held, "save", begun):
        task.save(folder / "saved")
    found["written"] = digest(task)
    with peak(held, "load", begun):
        task.load(folder / "saved" if saved is None else saved)
    found["read"] = digest(task)
    torch.save({"held": held, "losses": losses, **found}, folder / f"{number}.pt")
    parallel.leave()


def main(counts: list[int]) -> None:
    """Print a line for each number of ranks."""
    print("ranks   build    step  evaluate    save    load   state  dry step   losses  start  read")
    first: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        saved, written = None, None
        for ranks in counts:
            folder = Path(scratch) / str(ranks)
            folder.mkdir()
            start(rank, folder, ranks, saved, ranks=ranks)
            found = [torch.load(folder / f"{number}.pt") for number in range(ranks)]
            first = first or found[0]
            most = {phase: max(one["held"][phase] for one in found) for phase in found[0]["held"]}
            divided = ("weights", "gradients", "optimizer") if ranks > 1 else ()
            plan = dry(config(), ranks=ranks, divided=divided)
            state = sum(plan.memory[kind] for kind in ("weights", "optimizer")) / 1e9
            expected = sum(plan.peak.values()) / 1e9
            distance = max(
                abs(one - other) / other
                for one, other in zip(found[0]["losses"], first["losses"], strict=True)
            )
            equal = [
                found[0]["start"] == first["start"],
                found[0]["read"] == (written or found[0]["written"]),
            ]
            print(
                f"{ranks:5}{most['build']:8.2f}{most['step']:8.2f}{most['evaluate']:10.2f}{most['save']:8.2f}"
                f"{most['load']:8.2f}{state:8.2f}{expected:10.2f}{distance:9.1e}  "
                + "  ".join("equal" if one else "DIFFERENT" for one in equal),
                flush=True,
            )
            saved, written = folder / "saved", found[0]["written"]


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [1, 2, 4])
