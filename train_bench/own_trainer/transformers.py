"""Transformers under the clock of train_bench: `TimeToTrain(benchmark, 60_000, 10_000, top1="eval_acc")` is a callback.

The script announces, calls `benchmark.init_start()`, builds the model, and calls `trainer.train()`. Data sets may not
read before a sample is requested. Marks decide when to evaluate, whatever `eval_strategy` says, and when it ends.
"""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from train_bench import Benchmark


class TimeToTrain(TrainerCallback):
    """Sizes are those of both sets; `metrics` has each metric by its name in the Trainer, which begins with `eval_`."""

    def __init__(self, benchmark: Benchmark, train_samples: int, eval_samples: int, **metrics: str) -> None:
        self.benchmark, self.sizes, self.metrics = benchmark, (train_samples, eval_samples), metrics
        self.samples = self.before = self.batches = 0

    def on_train_begin(self, args: Any, state: Any, *_: Any, train_dataloader: Any, **__: Any) -> None:
        if step := state.global_step:
            raise ValueError(f"The Trainer begins at step {step} of a checkpoint: train() without it.")
        if args.eval_on_start:
            raise ValueError("TrainingArguments(eval_on_start=False): training comes first.")
        partial = hasattr(train_dataloader.dataset, "__len__") and not args.dataloader_drop_last
        self.most = len(train_dataloader.dataset) if partial else sys.maxsize
        self.benchmark.init_stop()
        self.benchmark.run_start(*self.sizes)
        self.mark = self.benchmark.block_start()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.before, self.batches = self.samples, 0

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        self.batches += 1

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches += 1
        self.samples = self.before + min(self.batches * state.train_batch_size * args.world_size, self.most)
        control.should_evaluate = self.samples >= self.mark.count
        if control.should_evaluate:
            self.benchmark.eval_start(samples=self.samples)

    def on_epoch_end(self, _args: Any, _state: Any, control: TrainerControl, **__: Any) -> None:
        control.should_evaluate = False

    def on_evaluate(self, _args: Any, _state: Any, control: TrainerControl, **found: Any) -> None:
        metrics = {metric: found["metrics"][name] for metric, name in self.metrics.items()}
        if self.benchmark.report(**metrics):
            control.should_training_stop = True
        else:
            self.mark = self.benchmark.block_start()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if not self.benchmark.done:
            raise ValueError("The Trainer ended before the run was decided; raise num_train_epochs.")
