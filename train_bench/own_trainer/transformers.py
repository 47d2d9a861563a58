"""Transformers under the clock of train_bench: `TimeToTrain(benchmark, 60_000, 10_000, top1="eval_acc")` is a callback.

The script announces, calls `benchmark.init_start()` before it builds the model, and then `trainer.train()`; the
callback does the rest. Data sets are made before the clock starts, so they may not read before a sample is requested.
The marks of the benchmark determine when to evaluate, regardless of `eval_strategy`, and when the run is over.
"""

from __future__ import annotations

import sys
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from train_bench import Benchmark


class TimeToTrain(TrainerCallback):
    """The sizes are those of the training and the evaluation set; `metrics` gives for each metric of the target its
    name in the Trainer, where those of `compute_metrics` begin with `eval_`. Each rank trains on samples of its own."""

    def __init__(self, benchmark: Benchmark, train_samples: int, eval_samples: int, **metrics: str) -> None:
        self.benchmark, self.sizes, self.metrics = benchmark, (train_samples, eval_samples), metrics
        self.samples = self.before = self.batches = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, train_dataloader: Any, **__: Any
    ) -> None:
        if state.global_step:
            raise ValueError(
                f"The Trainer begins at step {state.global_step} of a checkpoint; a timed run begins with new weights: "
                "call train() without resume_from_checkpoint."
            )
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
