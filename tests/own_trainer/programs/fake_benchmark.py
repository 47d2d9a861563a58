"""What stands where a `Benchmark` stands, and notes when an adapter evaluates."""

from __future__ import annotations

import os

from train_bench.progress import Mark


class FakeBenchmark:
    """Evaluations are due after `counts` samples; the last of them ends the run."""

    def __init__(self, *counts: int) -> None:
        self.due = [Mark(count=count, epoch_num=0, first_epoch_num=0, epoch_count=0) for count in counts]
        self.said: list[str] = []
        self.evaluated: list[int] = []

    @property
    def done(self) -> bool:
        return not self.due

    seed, world_size = 0, int(os.environ.get("WORLD_SIZE", "1"))

    def begin(self, *conflicts: str, **_: object) -> bool:
        if conflicts:
            raise ValueError(" ".join(conflicts))
        return False

    def init_stop(self) -> None:
        self.said.append("init_stop")

    def run_start(self) -> None:
        self.said.append("run_start")

    def block_start(self) -> Mark:
        return self.due[0]

    def eval_start(self, samples: int) -> None:
        self.evaluated.append(samples)

    def report(self, **_: float) -> bool:
        self.due.pop(0)
        return self.done
