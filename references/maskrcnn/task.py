"""Instance segmentation: Mask R-CNN, trained to a target AP of its boxes and of its masks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from train_bench.quality import Quality
from train_bench.references.maskrcnn import data, start_weights
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.detector import Detector
from train_bench.references.maskrcnn.images import Batch
from train_bench.references.maskrcnn.model import tensor_names
from train_bench.references.maskrcnn.order import ByOrientation, tall
from train_bench.references.maskrcnn.quality import results
from train_bench.references.maskrcnn.recipe import optimizer_of, schedule_of
from train_bench.references.parts import coco_ap, prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.layout import layout_of
from train_bench.references.parts.training import TrainingTask
from train_bench.task import DataFacts


class Task(TrainingTask[Config, Batch]):
    """The benchmark `maskrcnn` and its smaller scales."""

    model: Detector

    def build_model(self) -> tuple[Detector, torch.optim.Optimizer]:
        config = self.config
        self._schedule = schedule_of(config)
        self.tensor_names = tensor_names(len(config.model.widths))  # layers that start from random weights
        self._layout = layout_of(config.model.channels_last, self.parallel)
        model = Detector(config)
        file = config.start_weights_file()
        if file is not None:
            start_weights.load(model.network.backbone, file)
        model.to(self.parallel.device).to(memory_format=self._layout)
        return model, optimizer_of(model, config)

    def warm_up(self) -> None:
        batch = self.synthetic(self.local_batch_size)
        self.run_warmup(batch)
        self.infer(self._images(batch), batch.sizes)

    def synthetic(self, samples: int, *, share: float = 1.0) -> Batch:
        """A synthetic micro-batch of the largest images or of a share of their pixels; reads no data."""
        return data.synthetic(self.config, samples, share=share)

    def iterate(self, batch: Batch) -> None:
        """Without what depends on values: proposals, matches and draws. As many anchors and RoIs as may be."""
        self.forward.train()
        for micro_batch in self.micro_batches(iter([batch] * self.microbatches)):
            losses = self.model.any_losses(self._images(micro_batch))
            self.backward(torch.stack(list(losses.values())).sum())
        self.step()

    def dry_notes(self) -> Sequence[str]:
        """Limitations of a dry run's numbers."""
        detection, hyperparameters = self.config.detection, self.config.hyperparameters
        return (
            f"Images are padded to the largest of their batch, here all to {hyperparameters.min_image_size} x "
            f"{hyperparameters.max_image_size} pixels, the largest there is; their mean size is not known.",
            f"Of every image {detection.anchors_sampled} anchors and {detection.rois_sampled} regions, a quarter of "
            "them with an object, the most there may be. Left out: proposing regions (sorting, suppression), matching "
            "them with objects, targets of masks.",
        )

    def open_data(self) -> DataFacts:
        """Find and check images and annotations, start the loaders."""
        config, parallel = self.config, self.parallel
        train, self._val = data.open_splits(config, prepared.folder_of(config))
        self._truth = coco_ap.index(self._val.path)
        train_set = data.TrainingSet(
            split=train,
            hyperparameters=config.hyperparameters,
            flip=config.data.flip,
            means=config.data.means,
            generators=Generators(self.derived_seed("augmentation")),
            objects_of=data.owners(train, permuted=config.data.permute_labels),
        )
        eval_set = data.EvaluationSet(
            split=self._val, hyperparameters=config.hyperparameters, means=config.data.means
        )
        order = ByOrientation(
            tall=tall(train.annotations.sizes[train.images]),
            seed=self.seed,
            global_batch_size=config.hyperparameters.global_batch_size,
        )
        seen, size = len(self._val.images), config.data.eval_batch_size
        mine = stream.evaluation_order(seen, size, parallel.rank, parallel.size, padded=False)
        fingerprint = self.use_loaders(
            data.loader(train_set, config.data, parallel.device, self.sampler(order)),
            data.loader(eval_set, config.data, parallel.device, mine),
        )
        return DataFacts(train_samples=len(train.images), eval_samples=seen, fingerprint=fingerprint)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """The loss is the sum of the five losses, each a mean over the global batch."""
        for batch in self.micro_batches(batches):
            objects = [each.to(self.parallel.device) for each in batch.objects]
            losses = self.forward(self._images(batch), batch.sizes, objects)
            self.backward(torch.stack(list(losses.values())).sum())
        for group in self.optimizer.param_groups:
            group["lr"] = self._schedule(self.optimizer_steps + 1, factor=group["rate"])
        self.step()

    def _images(self, batch: Batch) -> torch.Tensor:
        return batch.images.to(self.parallel.device, memory_format=self._layout, non_blocking=True)

    def evaluate(self) -> Quality:
        """`BBOX` and `SEGM`: COCO AP of boxes and masks; NaN once the loss is not finite."""
        parallel, annotations = self.parallel, self._val.annotations
        rows: list[coco_ap.Detection] = []
        for batch in self.evaluation_batches():
            detected = self.infer(self._images(batch), batch.sizes)
            for each, number, size in zip(detected, batch.indices, batch.sizes, strict=True):
                height, width = annotations.sizes[number].tolist()
                rows += results(each, int(annotations.image_ids[number]), size, (height, width))
        for row in rows:
            row["category_id"] = int(annotations.category_ids[row["category_id"] - 1])
        diverged = self.has_diverged()
        kinds = {"BBOX": "bbox", "SEGM": "segm"}
        return Quality(
            metrics={
                name: math.nan
                if diverged
                else coco_ap.average_precision(self._truth, rows, kind, ranks=parallel)
                for name, kind in kinds.items()
            }
        )
