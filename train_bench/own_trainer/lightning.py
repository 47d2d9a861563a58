"""Lightning under the clock of train_bench: `callbacks=[TimeToTrain(accuracy="val_acc")]` of a Trainer.

The callback seeds by the run, announces the planned hyperparameters and begins initialization when `fit()` does. The
clock starts before Lightning asks for the first data loader, hence `prepare_data()` and `setup()` must not read the
data. The marks of the benchmark determine when to validate, and when the run is over.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.utilities.data import extract_batch_size

from train_bench import Benchmark


class TimeToTrain(Callback):
    """`metrics` has the name that the module logs, by metric of the target. A script that has made its `benchmark`
    itself, or whose loaders do not know the sizes of their data sets, passes these. `hand_over` takes the module and
    gives what the evaluator of the run measures, if it has one; default: its weights."""

    def __init__(
        self,
        benchmark: Benchmark | None = None,
        train_samples: int | None = None,
        eval_samples: int | None = None,
        hand_over: Callable[[Any], Any] = lambda module: module.state_dict(),
        **metrics: str,
    ) -> None:
        self.hand_over = hand_over
        self.benchmark, self.sizes, self.metrics = (
            benchmark or Benchmark(),
            [train_samples, eval_samples],
            metrics,
        )
        self.samples = self.steps = 0
        self.seed = str(self.benchmark.seed % 2**32) if benchmark is None else None
        if self.seed is not None and "PL_GLOBAL_SEED" not in os.environ:
            seed_everything(int(self.seed), verbose=False)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        ranks, steps = self.benchmark.world_size, trainer.accumulate_grad_batches
        seed = os.environ.get("PL_GLOBAL_SEED")
        conflicts = {
            f"seed_everything({seed}) starts every run alike: leave it out, for this callback seeds by the run.": (
                self.seed not in (None, seed)
            ),
            f"Trainer(devices={trainer.world_size}) trains alone, and the run has {ranks} ranks: "
            f"Trainer(devices={ranks}, strategy='ddp').": trainer.world_size != ranks,
            f"Trainer(min_steps={trainer.min_steps}, min_epochs={trainer.min_epochs}) would train past the target: "
            "leave them out.": trainer.min_steps or trainer.min_epochs,
            "The Trainer does not validate: it takes validation_step() and limit_val_batches above 0.": (
                not trainer.enable_validation
            ),
        }
        loops = (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop)
        given = [loop._data_source.instance for loop in loops]  # or who has the loaders, not asked yet
        loaders = [one if hasattr(one, "batch_sampler") else None for one in given]
        sizes = [
            _size(loader) if size is None else size for loader, size in zip(loaders, self.sizes, strict=True)
        ]
        batch = (getattr(loaders[0], "batch_size", None) or 0) * ranks * steps
        values = {"gradient_accumulation_steps": steps} if steps > 1 else {}
        self.begun = self.benchmark.begin(
            *(sentence for sentence, holds in conflicts.items() if holds),
            metrics=self.metrics,
            train_samples=sizes[0],
            eval_samples=sizes[1],
            **values | ({"global_batch_size": batch} if batch else {}),
        )
        trainer.check_val_every_n_epoch, trainer.num_sanity_val_steps = None, 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if step := trainer.ckpt_path or trainer.global_step:
            raise ValueError(f"The Trainer continues a checkpoint of {step}: fit() a new Trainer.")
        if self.begun:
            self.benchmark.weights_initialized(*dict(pl_module.named_parameters()))
        self.benchmark.init_stop()
        self.benchmark.run_start()
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
        if self.benchmark.has_evaluator:
            over = self.benchmark.hand_over(self.hand_over(pl_module))
        else:
            over = self.benchmark.report(**self._logged(trainer))
        if over:
            trainer.should_stop = True
        else:
            self.mark = self.benchmark.block_start()

    def _logged(self, trainer: Trainer) -> dict[str, Any]:
        logged = trainer.callback_metrics
        if missing := [name for name in self.metrics.values() if name not in logged]:
            raise ValueError(
                f"The module logs {', '.join(logged)}, and no {', '.join(missing)}: log it in validation_step()."
            )
        found = {metric: logged[name] for metric, name in self.metrics.items()}
        for metric, value in found.items():
            if abs(trainer.strategy.reduce(value.clone(), reduce_op="mean") / value - 1) > 1e-5:
                raise ValueError(f"{self.metrics[metric]} differs between ranks: log it with sync_dist=True.")
        return found

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.benchmark.done:
            raise ValueError("Lightning ended before the run was decided; Trainer(max_epochs=-1) goes on.")


def _size(loader: Any) -> int | None:
    dataset: Any = getattr(loader, "dataset", None)
    return len(dataset) if hasattr(dataset, "__len__") else None
