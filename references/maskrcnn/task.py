"""Instance segmentation: train Mask R-CNN until the AP of its boxes and of its masks suffices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, coco_ap, loading, prepared, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.maskrcnn import data, start_weights
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.detector import Detector
from train_bench.references.maskrcnn.images import Batch
from train_bench.references.maskrcnn.model import tensor_names
from train_bench.references.maskrcnn.order import Order, tall
from train_bench.references.maskrcnn.quality import results
from train_bench.references.maskrcnn.recipe import optimizer_of, schedule_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `maskrcnn` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._batches: Iterator[Batch] | None = None
        self._eval: loading.Loader | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, start weights, optimizer, schedule, warm-up."""
        config = self.config
        self._seed, self._parallel = seed, parallel
        self._microbatches = config.hyperparameters.gradient_accumulation_steps
        if config.compile:
            raise RequestError(
                f"{config.benchmark} cannot be compiled: the sizes of its images and the numbers of its boxes "
                "change from step to step. Leave out benchmark.compile=true."
            )
        stream.refuse_uneven_batches(config, parallel.size)
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        self._model = Detector(config)
        file = config.start_weights_file()
        if file is not None:
            start_weights.load(self._model.network.backbone, file)
        self._layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
        self._model.to(parallel.device).to(memory_format=self._layout)
        self._optimizer = optimizer_of(self._model, config)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and an evaluation batch on synthetic data, undone (rules: initialisation may not touch
        the data set)."""
        with without_trace(self._model, self._optimizer, self._parallel):
            micro = data.synthetic(self.config, self.config.local_batch_size(self._parallel.size))
            for _ in range(self.config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if self.config.warm_up_steps:
                self._forward.eval()
                with self._parallel.inference():
                    self._forward(self._images(micro), micro.sizes)
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=self._parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All layers that start from random weights, as the rules name them."""
        return tensor_names(len(self.config.model.widths))

    def open_data(self) -> DataFacts:
        """Find and check images and annotations, start the loaders."""
        config, parallel = self.config, self._parallel
        train, self._val = data.open_splits(config, prepared.folder_of(config))
        self._train_set = data.TrainingSet(
            split=train,
            asked=config.hyperparameters,
            flip=config.data.flip,
            means=config.data.means,
            seed=derive(self._seed, "augmentation"),
            objects_of=data.owners(train, permuted=config.data.permute_labels),
        )
        eval_set = data.EvaluationSet(split=self._val, asked=config.hyperparameters, means=config.data.means)
        mine = list(range(parallel.rank, len(self._val.images), parallel.size))
        size = config.data.eval_batch_size
        batches = [mine[first : first + size] for first in range(0, len(mine), size)]
        self._eval = data.loader(eval_set, config.data, parallel.device, batches)
        self._truth = coco_ap.index(self._val.path) if parallel.rank == 0 else None
        self._train = self._from_here()
        self._batches = iter(self._train)
        return DataFacts(
            train_samples=len(train.images),
            eval_samples=len(self._val.images),
            fingerprint=loading.fingerprint_of(self._train, self._eval),
        )

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        split = self._train_set.split
        sizes = split.annotations.sizes[split.images]
        order = Order(
            tall=tall(sizes),
            seed=self._seed,
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        return data.loader(self._train_set, self.config.data, self._parallel.device, order)

    def train_until(self, mark: Mark) -> Progress:
        """Whole batches until `mark.count` samples are consumed. The schedule stands still where a step
        was skipped for an overflow; the data do not."""
        assert self._batches is not None, "open_data comes first"
        batch_size = self.config.hyperparameters.global_batch_size
        self._forward.train()
        for _ in range(self._taken, math.ceil(mark.count / batch_size)):
            self._train_step(self._batches)
        return Progress(samples=self._taken * batch_size)

    def _train_step(self, batches: Iterator[Batch]) -> None:
        """One step of the global batch: the sum of the five losses."""
        parallel = self._parallel
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule(self._step + 1, factor=group["rate"])
        for microbatch in range(1, self._microbatches + 1):
            batch = next(batches)
            objects = [each.to(parallel.device) for each in batch.objects]
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                losses = self._forward(self._images(batch), batch.sizes, objects)
                loss = torch.stack(list(losses.values())).sum()
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step())
        self._taken += 1

    def _images(self, batch: Batch) -> torch.Tensor:
        return batch.images.to(self._parallel.device, memory_format=self._layout, non_blocking=True)

    def evaluate(self) -> Quality:
        """`BBOX` and `SEGM`: COCO AP of boxes and masks; NaN once the loss is not finite."""
        assert self._eval is not None, "open_data comes first"
        parallel, annotations = self._parallel, self._val.annotations
        parallel.sync_buffers()
        self._forward.eval()
        rows: list[coco_ap.Detection] = []
        for batch in self._eval:
            with parallel.inference():
                found = self._forward(self._images(batch), batch.sizes)
            for each, number, size in zip(found, batch.indices, batch.sizes, strict=True):
                height, width = annotations.sizes[number].tolist()
                rows += results(each, int(annotations.image_ids[number]), size, (height, width))
        for row in rows:
            row["category_id"] = int(annotations.category_ids[row["category_id"] - 1])
        self._forward.train()
        broken = float(parallel.sum((~torch.isfinite(self._last_loss)).float()))
        every = coco_ap.gathered(parallel, rows)
        if broken or self._truth is None:
            return Quality(metrics={"BBOX": math.nan, "SEGM": math.nan})
        kinds = {"BBOX": "bbox", "SEGM": "segm"}
        return Quality(
            metrics={
                name: coco_ap.average_precision(self._truth, every, kind) for name, kind in kinds.items()
            }
        )

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
