"""Image classification: train ResNet until its top-1 accuracy on the evaluation set suffices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, loading, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.resnet import data
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.model import ResNet, tensor_names
from train_bench.references.resnet.recipe import optimizer_of, schedule_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `resnet` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, optimizer, schedule, warm-up. Reads sizes from the configuration only."""
        config = self.config
        self._seed, self._parallel = seed, parallel
        self._microbatches = config.hyperparameters.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        self._share = config.local_batch_size(parallel.size)
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
        model: nn.Module = ResNet(config.model).to(parallel.device).to(memory_format=layout)
        self._layout = layout
        self._names = tensor_names(model)
        self._model = parallel.batch_norm(model, ranks=config.batch_norm_ranks(parallel.size))
        if config.compile:
            self._model.compile()
        self._optimizer = optimizer_of(self._model, config.hyperparameters)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        self._means = torch.tensor(config.data.means, device=parallel.device).view(1, 3, 1, 1)
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and an evaluation batch on synthetic data, undone (rules: initialisation may not touch
        the data set)."""
        config, parallel = self.config, self._parallel
        with without_trace(self._model, self._optimizer, parallel):
            micro = data.synthetic(config, self._share)
            for _ in range(config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if config.warm_up_steps:
                self._forward.eval()
                self._count(data.synthetic(config, config.data.eval_batch_size))
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All parameters, as the rules name them (161 for ResNet-50)."""
        return self._names

    def open_data(self) -> DataFacts:
        """Find and check the images, start the loaders."""
        config, parallel = self.config, self._parallel
        train, val = data.open_images(config)
        self._train_images = data.TrainingSet(
            images=train, data=config.data, seed=derive(self._seed, "augmentation")
        )
        batches = stream.evaluation_order(
            len(val.labels), config.data.eval_batch_size, parallel.rank, parallel.size
        )
        eval_set = data.EvaluationSet(images=val, data=config.data)
        self._eval = loading.loader(
            eval_set, config.data, parallel.device, batches, padding_from=len(val.labels)
        )
        self._train = self._from_here()
        self._batches = iter(self._train)
        return DataFacts(
            train_samples=len(train.labels),
            eval_samples=len(val.labels),
            fingerprint=loading.fingerprint_of(self._train, self._eval),
        )

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        order = stream.Order(
            samples=len(self._train_images.images.labels),
            seed=self._seed,
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        return loading.loader(self._train_images, self.config.data, self._parallel.device, order)

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
        """One step of the global batch: the loss is the mean over it (reference: sum / GBS)."""
        parallel, smoothing = self._parallel, self.config.label_smoothing
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule(self._step)
        for microbatch in range(1, self._microbatches + 1):
            images, labels = self._on_device(next(batches))
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                logits = self._forward(images)
                loss = functional.cross_entropy(logits.float(), labels, label_smoothing=smoothing)
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step())
        self._taken += 1

    def _on_device(self, batch: data.Batch) -> data.Batch:
        """The batch on this rank's device with the means subtracted."""
        images, labels = (part.to(self._parallel.device, non_blocking=True) for part in batch)
        return (images - self._means).contiguous(memory_format=self._layout), labels

    def evaluate(self) -> Quality:
        """`top1` over the whole evaluation set by running batch-norm statistics; NaN once the loss or
        a prediction is not finite."""
        assert self._eval is not None, "open_data comes first"
        self._parallel.sync_buffers()
        self._forward.eval()
        counts = torch.zeros(3, dtype=torch.int64, device=self._parallel.device)
        counts[2] = ~torch.isfinite(self._last_loss)
        for batch in self._eval:
            counts += self._count(batch)
        self._forward.train()
        correct, seen, broken = self._parallel.sum(counts).tolist()
        return Quality(metrics={"top1": math.nan if broken else correct / seen})

    def _count(self, batch: data.Batch) -> torch.Tensor:
        """int64 (3,): right predictions, examples that are not padding, predictions not finite."""
        images, labels = self._on_device(batch)
        with self._parallel.inference():
            logits = self._forward(images)
        right = logits.argmax(dim=1) == labels
        broken = ~torch.isfinite(logits).all(dim=1)
        return torch.stack([right.sum(), (labels != data.PADDING_LABEL).sum(), broken.sum()])

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
