"""Medical image segmentation: train 3D U-Net until its mean DICE on the evaluation set suffices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import torch
from torch import Tensor, nn

from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, loading, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.unet3d import data, quality
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.loss import dice_and_cross_entropy
from train_bench.references.unet3d.model import UNet3D, tensor_names
from train_bench.references.unet3d.recipe import optimizer_of, schedule_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `unet3d` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, optimizer, schedule, importance map, warm-up. Reads sizes from the configuration only."""
        config = self.config
        asked = config.hyperparameters
        self._seed, self._parallel = seed, parallel
        self._microbatches = asked.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        _refuse_shapes(config)
        self._share = asked.global_batch_size // (parallel.size * self._microbatches)
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        layout = torch.channels_last_3d if config.model.channels_last else torch.contiguous_format
        self._model: nn.Module = UNet3D(config.model).to(parallel.device).to(memory_format=layout)
        self._names = tensor_names(self._model)
        if config.compile:
            self._model.compile()
        self._optimizer = optimizer_of(self._model, asked)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        window = quality.as_shape(asked.validation_input_shape)
        self._importance = quality.importance(window).to(parallel.device)
        self._strides = quality.strides_of(window, asked.validation_overlap)
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and evaluation windows on synthetic data, undone (rules: initialisation may not touch the
        data set)."""
        config, parallel = self.config, self._parallel
        with without_trace(self._model, self._optimizer, parallel):
            micro = data.synthetic(config, self._share)
            for _ in range(config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if config.warm_up_steps:
                self._forward.eval()
                window = config.hyperparameters.validation_input_shape
                self._infer(torch.zeros(config.data.eval_windows, 1, *window, device=parallel.device))
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All layers, as the rules name them (50 for the full model)."""
        return self._names

    def open_data(self) -> DataFacts:
        """Find and check the volumes, start the loaders."""
        config, parallel = self.config, self._parallel
        asked = config.hyperparameters
        train, val = data.open_volumes(config)
        self._train_set = data.TrainingSet(
            volumes=train,
            data=config.data,
            shape=asked.training_input_shape,
            oversampling=asked.oversampling,
            classes=config.model.num_classes,
            seed=derive(self._seed, "crops"),
        )
        self._eval_set = data.EvaluationSet(volumes=val)
        mine = data.evaluation_order(val.shapes, parallel.rank, parallel.size)
        self._eval = loading.loader(self._eval_set, config.data, parallel.device, mine, collate=itemgetter(0))
        self._train = self._from_here()
        self._batches = iter(self._train)
        return DataFacts(
            train_samples=len(train),
            eval_samples=len(val),
            fingerprint=loading.fingerprint_of(self._train, self._eval),
        )

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        order = data.Order(
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        return loading.loader(self._train_set, self.config.data, self._parallel.device, order)

    def train_until(self, mark: Mark) -> Progress:
        """Whole batches until `mark.count` samples are consumed. The schedule stands still where a step
        was skipped for an overflow; the data do not."""
        assert self._batches is not None, "open_data comes first"
        batch_size = self.config.hyperparameters.global_batch_size
        self._forward.train()
        for _ in range(self._taken, math.ceil(mark.count / batch_size)):
            self._train_step(self._batches)
        return Progress(samples=self._taken * batch_size)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """One step of the global batch: the loss is the mean over it."""
        parallel = self._parallel
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule(self._step)
        for microbatch in range(1, self._microbatches + 1):
            images, labels = (part.to(parallel.device, non_blocking=True) for part in next(batches))
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                loss = dice_and_cross_entropy(self._forward(images), labels)
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step())
        self._taken += 1

    def evaluate(self) -> Quality:
        """`DICE`: the mean over all evaluation cases per class, then over the foreground classes; NaN once the
        loss or a logit is not finite.

        Each rank scores its cases; a row of the table is filled by one rank and zero on all others, so the
        sum over ranks changes no number.
        """
        assert self._eval is not None, "open_data comes first"
        self._forward.eval()
        device, classes = self._parallel.device, self.config.model.num_classes
        scores = torch.zeros(len(self._eval_set.volumes), classes - 1, dtype=torch.float64, device=device)
        broken = (~torch.isfinite(self._last_loss)).double()
        for index, image, label in self._eval:
            logits, truth = self._segment(
                image.to(device, non_blocking=True), label.to(device, non_blocking=True)
            )
            scores[index] = quality.dice_per_class(logits.argmax(dim=0), truth[0], classes)
            broken += ~torch.isfinite(logits).all()
        self._forward.train()
        table = self._parallel.sum(torch.cat([scores.flatten(), broken.view(1)])).cpu()
        dice = table[:-1].view_as(scores).mean(dim=0).mean()
        return Quality(metrics={"DICE": math.nan if table[-1] else float(dice)})

    def _segment(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """(classes, d, h, w) logits and (1, d, h, w) labels of a volume whose border was cut away to fit the
        windows."""
        logits = quality.sliding_window(
            self._infer,
            quality.without_remainder(image, self._strides),
            self._importance,
            strides=self._strides,
            padding=self.config.data.eval_padding,
            windows=self.config.data.eval_windows,
        )
        return logits, quality.without_remainder(label, self._strides)

    def _infer(self, windows: Tensor) -> Tensor:
        with self._parallel.inference():
            return self._forward(windows)

    def samples_taken(self) -> SamplesTaken:
        """Which samples this rank has trained and evaluated on."""
        assert self._train is not None and self._eval is not None, "open_data comes first"
        return loading.samples_taken(self._train, self._eval)

    def save(self, folder: Path) -> None:
        """Called by every rank; rank 0 writes, in one step."""
        counters = {"seed": self._seed, "step": self._step, "taken": self._taken}
        checkpoint.save(folder, self._parallel, self._model, self._optimizer, counters)

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Order and augmentation follow the
        seed of the run that was saved."""
        counters = checkpoint.load(folder, self._parallel, self._model, self._optimizer)
        self._seed, self._step, self._taken = (counters[name] for name in ("seed", "step", "taken"))
        if self._batches is not None:
            self.open_data()

    def close(self) -> None:
        """Stop the loaders' processes."""
        self._batches = self._train = self._eval = None


def _refuse_shapes(config: Config) -> None:
    """The network halves sides; at least two voxels have to remain, or a norm has nothing to compare."""
    asked = config.hyperparameters
    parts = 2 ** (len(config.model.channels) - 1)
    for name in ("training_input_shape", "validation_input_shape"):
        shape = getattr(asked, name)
        if len(shape) != 3 or any(side % parts or side < 2 * parts for side in shape):
            raise RequestError(
                f"{name} is {shape}; allowed are three multiples of {parts}, at least {2 * parts}."
            )
    if not 0.0 <= asked.validation_overlap < 1.0:
        raise RequestError(f"validation_overlap is {asked.validation_overlap}; allowed is 0 to below 1.")
