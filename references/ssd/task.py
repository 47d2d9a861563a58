"""Light-weight object detection: train SSD until its mean average precision suffices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from pycocotools.coco import COCO
from torch import Tensor, nn

from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, coco_ap, loading, prepared, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.ssd import data, quality, start_weights
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.detections import detect
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD, tensor_names
from train_bench.references.ssd.priors import priors
from train_bench.references.ssd.recipe import optimizer_of, schedule_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `ssd` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, start weights, prior boxes, optimizer, schedule, warm-up. Reads sizes from the configuration
        only."""
        config, device = self.config, parallel.device
        self._seed, self._parallel = seed, parallel
        self._microbatches = config.hyperparameters.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        self._share = config.local_batch_size(parallel.size)
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        network = SSD(config.model)
        weights = config.start_weights_file()
        if weights is not None:
            start_weights.load(network.backbone, weights)
        self._layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
        self._names = tensor_names(network)
        model: nn.Module = network.to(device).to(memory_format=self._layout)
        self._model = parallel.batch_norm(model, ranks=config.batch_norm_ranks(parallel.size))
        if config.compile:
            self._model.compile()
        self._optimizer = optimizer_of(self._model, config.hyperparameters)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        self._prior = priors(config.model)
        self._prior_there = self._prior.to(device)
        means, deviations = (
            255.0 * torch.tensor(values, device=device).view(1, 3, 1, 1)
            for values in (config.data.means, config.data.deviations)
        )
        self._means, self._deviations = means, deviations
        self._last_loss = torch.zeros((), device=device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and an evaluation batch on synthetic data, undone (rules: initialisation may not touch the
        data set)."""
        config, parallel = self.config, self._parallel
        if config.warm_up_steps:
            with without_trace(self._model, self._optimizer, parallel):
                micro = data.synthetic(config, self._share)
                for _ in range(config.warm_up_steps):
                    self._train_step(iter([micro] * self._microbatches))
                self._forward.eval()
                offsets, logits = self._infer(data.synthetic(config, config.data.eval_batch_size)[0])
                detect(offsets[0], logits[0], self._prior_there)
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All tensors, as the rules name them (119 for the full model)."""
        return self._names

    def open_data(self) -> DataFacts:
        """Find and check the images, start the loaders; rank 0 reads the truth of the evaluation."""
        config, parallel = self.config, self._parallel
        train, self._val = data.open_splits(config, prepared.folder_of(config))
        self._truth: COCO | None = coco_ap.index(self._val.path) if parallel.rank == 0 else None
        self._train_set = data.TrainingSet(
            split=train,
            data=config.data,
            prior=self._prior,
            side=config.model.image_size,
            max_samples=config.hyperparameters.max_samples,
            seed=derive(self._seed, "augmentation"),
        )
        mine = stream.evaluation_order(
            len(self._val.images), config.data.eval_batch_size, parallel.rank, parallel.size
        )
        eval_set = data.EvaluationSet(split=self._val, side=config.model.image_size)
        self._eval = loading.loader(
            eval_set, config.data, parallel.device, mine, padding_from=len(self._val.images)
        )
        self._train = self._from_here()
        self._batches = iter(self._train)
        every = len(self._val.annotations.image_ids)
        return DataFacts(
            train_samples=len(train.images),
            eval_samples=every,
            fingerprint=loading.fingerprint_of(
                self._train, self._eval, eval_left_out=every - len(self._val.images)
            ),
        )

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        order = stream.Order(
            samples=len(self._train_set.split.images),
            seed=self._seed,
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
            images, targets, classes = next(batches)
            targets, classes = (part.to(parallel.device, non_blocking=True) for part in (targets, classes))
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                offsets, logits = self._forward(self._normalized(images))
                loss = multibox_loss(offsets.float(), logits.float(), targets, classes)
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step())
        self._taken += 1

    def _normalized(self, images: Tensor) -> Tensor:
        """uint8 images on this rank's device as float32, without mean and of deviation 1."""
        there = images.to(self._parallel.device, non_blocking=True).float()
        return ((there - self._means) / self._deviations).contiguous(memory_format=self._layout)

    def evaluate(self) -> Quality:
        """`mAP` over the whole evaluation set by running batch-norm statistics; NaN once the loss or an
        answer of the network is not finite. Rank 0's answer counts."""
        assert self._eval is not None, "open_data comes first"
        self._parallel.sync_buffers()
        self._forward.eval()
        broken = (~torch.isfinite(self._last_loss)).long()
        found = []
        for images, indices in self._eval:
            offsets, logits = self._infer(images)
            broken += ~(torch.isfinite(offsets).all() & torch.isfinite(logits).all())
            for index, places, kinds in zip(indices.tolist(), offsets, logits, strict=True):
                if index < len(self._val.images):
                    boxes = detect(places, kinds, self._prior_there)
                    number = int(self._val.images[index])
                    found.append(quality.rows(boxes, self._val.annotations, number))
        self._forward.train()
        if self._parallel.sum(broken).item():
            return Quality(metrics={"mAP": math.nan})
        precision = quality.average_precision(self._truth, found, self._parallel)
        return Quality(metrics={"mAP": precision})

    def _infer(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with self._parallel.inference():
            offsets, logits = self._forward(self._normalized(images))
        return offsets, logits

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
