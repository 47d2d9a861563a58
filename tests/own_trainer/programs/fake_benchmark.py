"""What stands where a `Benchmark` stands, and notes when an adapter evaluates."""

from __future__ import annotations

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

    def init_stop(self) -> None:
        self.said.append("init_stop")

    def run_start(self, train_samples: int, eval_samples: int) -> None:
        self.said.append(f"run_start {train_samples} {eval_samples}")

    def block_start(self) -> Mark:
        return self.due[0]

    def eval_start(self, samples: int) -> None:
        self.evaluated.append(samples)

    def report(self, **_: float) -> bool:
        self.due.pop(0)
        return self.done
