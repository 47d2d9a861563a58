"""Losses and memory of each sharding of the training state, against DistributedDataParallel.

    python bench/studies/sharding.py [RANKS] [STEPS] [WIDTH]

The decoder of `llama31_8b_mini` at another width, from the same seed on the same batches, each way in processes of its
own on the CPU. Sizes are those of the largest rank: its weights and optimizer's state between two steps, its gradients
before one. Ends with 1 if a loss differs by more than 1e-4 of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.planned import composed, plan_of

WAYS: dict[str, tuple[str, ...]] = {"DDP": (), "FSDP2": ("launcher.shard=fsdp",)}
KINDS = ("weights", "gradients", "state")
BENCHMARK = "llama31_8b_mini"


def main() -> None:
    """Every way after the other, then the table."""
    given = [int(word) for word in sys.argv[1:]]
    ranks, steps, width = [*given, *(2, 20, 256)[len(given) :]]
    found = {way: _found(way, ranks, steps, width) for way in WAYS}
    print(f"{ranks} ranks, {steps} steps, width {width}; MiB on the largest rank")
    print(f"{'':6}", *(f"{kind:>10}" for kind in KINDS), f"{'last loss':>10}", "largest difference")
    apart = {}
    for way, one in found.items():
        pairs = zip(one["losses"], found["DDP"]["losses"], strict=True)
        apart[way] = max(abs(mine - theirs) / theirs for mine, theirs in pairs)
        sizes = (f"{one[kind] / 2**20:10.3f}" for kind in KINDS)
        print(f"{way:6}", *sizes, f"{one['losses'][-1]:10.5f}", f"{apart[way]:.1e}")
    sys.exit(max(apart.values()) > 1e-4)


def _found(way: str, ranks: int, steps: int, width: int) -> dict[str, Any]:
    """Answer of rank 0 of this way."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        agent = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        words = (__file__, "as-rank", way, str(ranks), str(steps), str(width), str(out))
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run((sys.executable, *agent, *words), check=True, env=environment, timeout=600)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def rank(way: str, ranks: int, steps: int, width: int, out: Path) -> None:
    """One rank of one way."""
    import torch

    from train_bench.core.sharded_tensors import own_part
    from train_bench.launchers.torchrun.parallel import join
    from train_bench.references.llama31_8b.task import Task
    from train_bench.references.parts.decoder import data

    torch.set_num_threads(1)
    shape = (f"benchmark.model.width={width}", f"benchmark.model.intermediate={4 * width}")
    words = (f"benchmark={BENCHMARK}", "device=cpu", "benchmark.warm_up_steps=0", *shape)
    config = composed([*words, "launcher=torchrun", f"launcher.nproc_per_node={ranks}", *WAYS[way]])
    job = plan_of(config, BENCHMARK).jobs[0]
    parallel, task = join(job), Task(config.benchmark)
    task.build(job.seed, parallel)

    def held(tensors: Any) -> int:
        return sum(own_part(one).nbytes for one in tensors if one is not None)

    def stepped(**options: Any) -> bool:
        gradients.append(held(weight.grad for weight in task.model.parameters()))
        return step(**options)

    gradients: list[int] = []
    step, parallel.step = parallel.step, stepped  # type: ignore[method-assign]
    losses = []
    share = config.benchmark.hyperparameters.global_batch_size // ranks
    for number in range(steps):
        batch = data.synthetic(config.benchmark, share * ranks) + number
        mine = (batch % config.benchmark.model.vocabulary).split(share)[parallel.rank]
        task.train_step(iter([mine]))
        losses.append(float(parallel.mean(task.last_loss)))
    state = [one for of in task.optimizer.state.values() for one in of.values()]
    sizes = {"weights": held(task.model.parameters()), "gradients": max(gradients), "state": held(state)}
    gathered = parallel.gather_objects(sizes)
    if gathered is not None:
        largest = {kind: max(one[kind] for one in gathered) for kind in KINDS}
        out.write_text(json.dumps({"losses": losses, **largest}))
    parallel.leave()


if __name__ == "__main__":
    if sys.argv[1:2] == ["as-rank"]:
        rank(sys.argv[2], *(int(word) for word in sys.argv[3:6]), Path(sys.argv[6]))
    else:
        main()
