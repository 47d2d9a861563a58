"""Work of ranks that is no timed run: one iteration of a task, of which each rank leaves the loss."""

import sys

import torch

from train_bench.core import files
from train_bench.run import rank


def one_iteration(job, task, parallel):
    """Rank `fails` has something to complain about instead; with `varies` an operator does."""
    if parallel.rank == job.work_options.get("fails"):
        raise RuntimeError("the weights are upside down")
    if job.work_options.get("varies"):
        torch.zeros(2).put_(torch.tensor([0]), torch.ones(1))
    task.build(job.seed, parallel)
    task.iterate(task.synthetic(2))
    files.write_json(job.folder / f"seen_{parallel.rank}.json", {"ranks": parallel.size})


if __name__ == "__main__":
    sys.exit(rank.main(one_iteration))
