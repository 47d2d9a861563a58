"""A rank that profiles a benchmark with a fault in it: `options.fault` is a name of `FAULTS`."""

import os
import time
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import torch

from train_bench.profile import rank as profiling
from train_bench.profile.observed import Observed
from train_bench.run import rank


@contextmanager
def a_slow_rank(job, parallel):
    """The last rank shares its processor with processes that never rest, `options.beside` of them."""
    if parallel.rank + 1 < parallel.size:
        yield
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    parent, busy = os.getpid(), []
    for _ in range(job.work_options["beside"]):
        busy.append(os.fork())
        if busy[-1] == 0:
            while os.getppid() == parent:
                pass
            os._exit(0)
    try:
        yield
    finally:
        for process in busy:
            os.kill(process, 9)
            os.waitpid(process, 0)


@contextmanager
def a_rank_that_sleeps(job, parallel):
    """The last rank is late with its gradients in each step."""
    backward = Observed.backward

    def late(self, loss):
        if self.rank + 1 == self.size:
            time.sleep(0.1)
        backward(self, loss)

    with patch.object(Observed, "backward", late):
        yield


@contextmanager
def an_all_reduce_that_nothing_hides(job, parallel):
    """Before each update 64 MiB are summed over ranks, for nothing."""
    step = Observed.step

    def after_a_sum(self, **how):
        torch.distributed.all_reduce(torch.ones(2**24))
        return step(self, **how)

    with patch.object(Observed, "step", after_a_sum):
        yield


FAULTS = {
    fault.__name__: fault for fault in (a_slow_rank, a_rank_that_sleeps, an_all_reduce_that_nothing_hides)
}


def profiled(job, task, parallel):
    fault = FAULTS.get(job.work_options["fault"])
    with nullcontext() if fault is None else fault(job, parallel):
        profiling.profiled(job, task, parallel)


if __name__ == "__main__":
    rank.main(profiled)
