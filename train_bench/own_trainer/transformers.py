"""Transformers under the clock of train_bench: `callbacks=[TimeToTrain(accuracy="eval_accuracy")]` of a Trainer.

The callback seeds by the run, announces the planned hyperparameters and begins initialization when the Trainer is made.
Data sets may not read before a sample is requested. The marks of the benchmark determine when to evaluate, whatever
`eval_strategy` and `eval_on_start` say, and when the run is over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, set_seed

from train_bench import Benchmark


class TimeToTrain(TrainerCallback):
    """`metrics` has each metric of the target by its name in the Trainer, which begins with `eval_`. A script that has
    made its `benchmark` itself, or whose data sets have no length, passes these. `hand_over` takes the model and gives
    what the evaluator of the run measures, if it has one; default: its weights."""

    def __init__(
        self,
        benchmark: Benchmark | None = None,
        train_samples: int | None = None,
        eval_samples: int | None = None,
        hand_over: Callable[[Any], Any] = lambda model: model.state_dict(),
        **metrics: str,
    ) -> None:
        self.hand_over = hand_over
        self.benchmark, self.sizes, self.metrics = (
            benchmark or Benchmark(),
            (train_samples, eval_samples),
            metrics,
        )
        self.samples = self.before = self.batches = 0
        self.seed = self.benchmark.seed % 2**32 if benchmark is None else None

    def on_init_end(self, args: Any, *_: Any, **__: Any) -> None:
        ranks, steps = self.benchmark.world_size, args.gradient_accumulation_steps
        conflict = f"TrainingArguments() found {args.world_size} ranks, and the run has {ranks}."
        values = {"gradient_accumulation_steps": steps} if steps > 1 else {}
        self.begun = self.benchmark.begin(
            *[conflict] * (args.world_size != ranks),
            metrics=self.metrics,
            train_samples=self.sizes[0],
            eval_samples=self.sizes[1],
            global_batch_size=args.train_batch_size * ranks * steps,
            **values,
        )
        args.eval_on_start = False
        if self.seed is not None:
            args.seed = self.seed
            set_seed(self.seed)

    def on_train_begin(
        self, args: Any, state: Any, *_: Any, model: Any, train_dataloader: Any, **__: Any
    ) -> None:
        if step := state.global_step:
            raise ValueError(f"The Trainer begins at step {step} of a checkpoint: train() without it.")
        size = _size(train_dataloader)
        self.most = sys.maxsize if size is None or args.dataloader_drop_last else size
        self.benchmark.begin(train_samples=size if self.sizes[0] is None else self.sizes[0])
        if self.begun:
            self.benchmark.weights_initialized(*dict(model.named_parameters()))
        self.benchmark.init_stop()
        self.benchmark.run_start()
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

    def on_evaluate(
        self, _args: Any, _state: Any, control: TrainerControl, eval_dataloader: Any, model: Any, **found: Any
    ) -> None:
        if self.sizes[1] is None:
            self.benchmark.begin(eval_samples=_size(eval_dataloader))
        if self.benchmark.has_evaluator:
            over = self.benchmark.hand_over(self.hand_over(model))
        else:
            over = self.benchmark.report(**self._given(found["metrics"]))
        if over:
            control.should_training_stop = True
        else:
            self.mark = self.benchmark.block_start()

    def _given(self, given: Mapping[str, float]) -> dict[str, float]:
        if missing := [name for name in self.metrics.values() if name not in given]:
            raise ValueError(
                f"compute_metrics() and the model give {', '.join(given)}, and no {', '.join(missing)}."
            )
        return {metric: given[name] for metric, name in self.metrics.items()}

    def on_train_end(self, args: Any, *_: Any, **__: Any) -> None:
        if not self.benchmark.done:
            raise ValueError(
                f"The Trainer ended before the run was decided; raise num_train_epochs={args.num_train_epochs:g}."
            )


def _size(loader: Any) -> int | None:
    dataset: Any = getattr(loader, "dataset", None)
    return len(dataset) if hasattr(dataset, "__len__") else None
