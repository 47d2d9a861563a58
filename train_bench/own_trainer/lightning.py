"""Lightning under the clock of train_bench: `TimeToTrain(benchmark, 60_000, 10_000, top1="val_acc")` is a callback.

The script announces, calls `benchmark.init_start()` before it builds the model, and then `trainer.fit(...)`; the
callback does the rest. The clock starts before Lightning asks for the first data loader, hence `prepare_data()` and
`setup()` must not read the data. The marks of the benchmark determine when to validate, and when the run is over.
"""

from __future__ import annotations

import sys
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.data import extract_batch_size

from train_bench import Benchmark


class TimeToTrain(Callback):
    """Sizes are those of the two sets; `metrics` has the name that the module logs, by metric of the target."""

    def __init__(self, benchmark: Benchmark, train_samples: int, eval_samples: int, **metrics: str) -> None:
        self.benchmark, self.sizes, self.metrics = benchmark, (train_samples, eval_samples), metrics
        self.samples = self.steps = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.num_sanity_val_steps:
            raise ValueError("Trainer(num_sanity_val_steps=0): the sanity check evaluates before training.")
        if trainer.min_steps or trainer.min_epochs or not trainer.enable_validation:
            raise ValueError("Trainer() with validation, without min_steps and min_epochs: it ends the run.")
        if step := trainer.ckpt_path or trainer.global_step:
            raise ValueError(f"The Trainer continues a checkpoint of {step}; fit() a new Trainer.")
        trainer.check_val_every_n_epoch = None
        self.benchmark.init_stop()
        self.benchmark.run_start(*self.sizes)
        self.mark = self.benchmark.block_start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *of_batch: Any) -> None:
        replicas = (trainer.distributed_sampler_kwargs or {}).get("num_replicas", 1)
        self.samples += replicas * extract_batch_size(of_batch[1])
        due = self.samples >= self.mark.count and trainer.global_step > self.steps
        trainer.val_check_batch = 1 if due else sys.maxsize
        self.steps = trainer.global_step

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.benchmark.eval_start(samples=self.samples)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = {metric: trainer.callback_metrics[name] for metric, name in self.metrics.items()}
        for metric, value in found.items():
            if abs(trainer.strategy.reduce(value.clone(), reduce_op="mean") / value - 1) > 1e-5:
                raise ValueError(f"{self.metrics[metric]} differs between ranks: log it with sync_dist=True.")
        if self.benchmark.report(**found):
            trainer.should_stop = True
        else:
            self.mark = self.benchmark.block_start()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.benchmark.done:
            raise ValueError("Lightning ended before the run was decided; Trainer(max_epochs=-1) goes on.")
