"""Memory and losses of networks on ranks that shard them, over gloo on this CPU, against one rank and the dry plan.

    python bench/studies/sharded_ranks.py [--only decoder mixture adapters] [--large] [--steps 20]

A line per network and placement: on 4, 2 and 1 ranks `launcher.shard=fsdp`, of the decoder also tensor parallelism,
both, and copies on two pretended hosts. In GB, the most that a rank holds beyond its start: anonymous memory of the
process while it builds (beside twice its shard plus one tensor), takes the steps, evaluates, saves and loads, and what
torch's allocator has given out in the step and on the rank that needed least, beside the peak of the dry plan. Then the
largest relative distance of losses and of an evaluation from those of one rank, and whether start weights are those of
one rank, and weights and optimizer state that are read of the checkpoint of the line before are those that were
written, bit by bit.

The decoder has 57 million parameters, with --large 302 million and 6 GB. Some minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
# What is freed is given back, so that each phase shows its own peak.
os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}

import torch
import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # here, so that what they hold is no memory of a build

from tests.dry_run.measured import allocated, dry
from tests.references.configs import gpt_oss_20b, llama2_70b_lora, llama31_8b
from tests.references.several_ranks import FromFile, start
from train_bench.core.sharded_tensors import own_part, whole
from train_bench.launchers.parts.ddp import whole_state
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.fsdp_tensor_parallel import ShardedTensorParallel
from train_bench.launchers.parts.sharding import Shard, ShardingConfig
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.plan import discover

BATCH = 4
GB = 1e9
MEASURED = 3
"""Steps whose allocations are looked at: gloo's threads give back what they have sent in their own time."""

PHASES = ("build", "step", "evaluate", "save", "load")


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2."""


class Grouped(FromFile, TensorParallel):
    """Pairs of ranks divide matrices."""


class ShardedPairs(FromFile, ShardedTensorParallel):
    """Below both."""


@dataclass(frozen=True)
class Placement:
    """Ranks and their options of `launcher`."""

    name: str
    ranks: int
    parallel: Callable[..., Any] = Sharded
    options: Mapping[str, Any] = field(default_factory=lambda: {"shard": "fsdp"})
    nodes: int = 1


FSDP = tuple(Placement(f"fsdp {ranks}", ranks) for ranks in (4, 2, 1))
MESHES = (
    Placement("fsdp x tp 4", 4, ShardedPairs, {"shard": "fsdp", "tensor_parallel": 2}),
    Placement("hsdp 2 x 2", 4, Sharded, {"shard": "hsdp"}, nodes=2),
    Placement("tp 2", 2, Grouped, {"tensor_parallel": 2}),
)

COMMON = ("warm_up_steps=0", f"hyperparameters.global_batch_size={BATCH}")
WIDE = ("model.heads=12", "model.key_value_heads=4", "model.head_size=64", "model.vocabulary=4096")
SHORT = (
    *COMMON,
    "hyperparameters.max_sequence_length=32",
    "hyperparameters.opt_learning_rate_warmup_steps=0",
)


def decoder(large: bool) -> Any:
    """Of 57 or 302 million parameters."""
    shape = ("model.layers=8", "model.width=768", "model.intermediate=2048", *WIDE)
    if large:
        shape = ("model.layers=24", "model.width=1024", "model.intermediate=2816", "model.vocabulary=16384")
        shape = (*shape, "model.heads=16", "model.key_value_heads=4", "model.head_size=64")
    return llama31_8b("llama31_8b_mini", *shape, *SHORT)


def mixture(_: bool) -> Any:
    """Four layers of eight experts."""
    shape = ("model.layers=4", "model.width=768", "model.intermediate=256", *WIDE)
    return gpt_oss_20b("gpt_oss_20b_mini", *shape, *SHORT)


def adapters(_: bool) -> Any:
    """Adapters of eight layers."""
    shape = ("model.layers=8", "model.width=768", "model.intermediate=2048", *WIDE)
    rate = "hyperparameters.opt_learning_rate_warmup_steps=0"
    start = ("start_weights=null", "start_weights_sha256=null", "data.sequence_length=32")
    return llama2_70b_lora("llama2_70b_lora_mini", *shape, *COMMON, *start, rate)


CASES: Mapping[str, tuple[Callable[[bool], Any], tuple[Placement, ...]]] = {
    "decoder": (decoder, (*MESHES, *FSDP)),
    "mixture": (mixture, FSDP),
    "adapters": (adapters, FSDP),
}


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


@contextmanager
def peak(into: dict[str, float], phase: str, begun: int) -> Iterator[None]:
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
        into[phase] = (max(*seen, anonymous()) - begun) / GB


def digest(named: Iterator[tuple[str, torch.Tensor]]) -> str:
    """Of tensors, gathered one by one."""
    found = sha256()
    for name, one in named:
        found.update(name.encode() + whole(one).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def batch_of(task: Any, number: int) -> Any:
    """This rank's part of a batch of its own for each number."""
    batch = task.synthetic(BATCH)
    alone = isinstance(batch, torch.Tensor)
    parts = [(one + 7 * number) % task.config.model.vocabulary for one in ([batch] if alone else batch)]
    parallel = task.parallel
    mine = [one.chunk(parallel.data_ranks)[parallel.data_rank] for one in parts]
    return mine[0] if alone else tuple(mine)


def rank(
    number: int, folder: Path, case: str, placed: Placement, large: bool, steps: int, saved: Path
) -> None:
    """Everything, as one of the ranks; `saved` is a checkpoint to be read, if it is there."""
    parallel = placed.parallel(folder, rank=number, size=placed.ranks, nodes=placed.nodes, **placed.options)
    config = CASES[case][0](large)
    task, held, found = discover.task(config.reference)(config), {}, {}
    begun = anonymous()
    with peak(held, "build", begun):
        task.build(1, parallel)
    weights = list(task.model.parameters())
    found["limit"] = (
        2 * sum(own_part(one.detach()).nbytes for one in weights) + max(one.nbytes for one in weights)
    ) / GB
    found["start"] = digest(task.model.named_parameters())
    losses = []
    with peak(held, "step", begun):
        for step in range(steps):
            task.train_step(iter([batch_of(task, step)]))
            losses.append(float(parallel.mean(task.last_loss)))
    parallel.sync_buffers()
    task.forward.eval()
    with peak(held, "evaluate", begun):
        measured = (task._count if hasattr(task, "_count") else task.measure)(batch_of(task, steps))
    nats, count = parallel.sum(measured).tolist()
    task.forward.train()
    with peak(held, "save", begun):
        task.save(folder / "saved")
    found["written"] = digest(whole_state(task.model, task.optimizer, ()))
    with peak(held, "load", begun):
        task.load(saved if saved.exists() else folder / "saved")
    found["read"] = digest(whole_state(task.model, task.optimizer, ()))
    kept = sum(own_part(one.detach()).nbytes for one in weights)
    state = (one for of in task.optimizer.state.values() for one in of.values())
    kept += sum(own_part(one).nbytes for one in state)
    batch = batch_of(task, steps + 1)
    peaks = [allocated(lambda: task.train_step(iter([batch]))) for _ in range(MEASURED)]
    found["allocated"] = (kept + min(peaks)) / GB
    torch.save({"held": held, "losses": losses, "quality": nats / count, **found}, folder / f"{number}.pt")
    parallel.leave()


def expected(config: Any, placed: Placement) -> float:
    """Peak of the dry plan in GB."""
    together, shard = placed.options.get("tensor_parallel", 1), placed.options.get("shard")
    launcher = ShardingConfig(
        name="torchrun",
        nodes=placed.nodes,
        nproc_per_node=placed.ranks // placed.nodes,
        tensor_parallel=together,
        shard=None if shard is None else Shard(shard),
    )
    divided = launcher.divides if placed.ranks > 1 else ()
    ways = {"together": launcher.together, "sharing": launcher.sharing, "divided": divided}
    return sum(dry(config, ranks=placed.ranks, **ways).peak.values()) / GB


def distance(one: list[float], other: list[float]) -> float:
    """The largest relative one."""
    return max(abs(a - b) / abs(b) for a, b in zip(one, other, strict=True))


def study(case: str, *, large: bool, steps: int) -> None:
    """Print the lines of a network."""
    make, placements = CASES[case]
    config = make(large)
    lines: list[tuple[Placement, list[dict[str, Any]]]] = []
    with tempfile.TemporaryDirectory() as scratch:
        saved, written = Path(scratch) / "none", None
        for number, placed in enumerate(placements):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            start(rank, folder, case, placed, large, steps, saved, ranks=placed.ranks)
            found = [torch.load(folder / f"{each}.pt") for each in range(placed.ranks)]
            read = written or found[0]["written"]
            lines.append((placed, [{**one, "same": one["read"] == read} for one in found]))
            saved, written = folder / "saved", found[0]["written"]
            print(f"{case}: {placed.name} is done", file=sys.stderr, flush=True)
    (_, (alone, *_)) = lines[-1]
    print(
        f"\n{case}, {config.model.parameters / 1e6:.0f} million parameters, {steps} steps of {BATCH} samples"
    )
    heads = (*PHASES[:1], "limit", *PHASES[1:], "allocated", "dry", "losses", "quality", "start", "read")
    print(f"{'placement':13}" + "".join(f"{head:>10}" for head in heads))
    for placed, found in lines:
        most = {phase: max(one["held"][phase] for one in found) for phase in PHASES}
        numbers = [most["build"], found[0]["limit"], *(most[phase] for phase in PHASES[1:])]
        numbers += [min(one["allocated"] for one in found), expected(config, placed)]
        apart = [distance(found[0]["losses"], alone["losses"])]
        apart.append(distance([found[0]["quality"]], [alone["quality"]]))
        same = [found[0]["start"] == alone["start"], all(one["same"] for one in found)]
        print(
            f"{placed.name:13}"
            + "".join(f"{one:10.3f}" for one in numbers)
            + "".join(f"{one:10.1e}" for one in apart)
            + "".join(f"{'equal' if one else 'DIFFERENT':>10}" for one in same),
            flush=True,
        )


def main() -> None:
    """Each network that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--large", action="store_true", help="a decoder of 302 million parameters")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for case in options.only:
        study(case, large=options.large, steps=options.steps)


if __name__ == "__main__":
    main()
