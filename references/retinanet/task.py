"""Object detection: RetinaNet, trained to a target mean average precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from pycocotools.coco import COCO
from torch import Tensor, nn
from torch.nn import functional

from train_bench.quality import Quality
from train_bench.references.parts import backbone_weights, box_quality, coco_ap, loading, prepared, stream
from train_bench.references.parts.training import TrainingTask, non_finite
from train_bench.references.retinanet import data
from train_bench.references.retinanet.anchors import anchors
from train_bench.references.retinanet.config import Config
from train_bench.references.retinanet.detections import detect
from train_bench.references.retinanet.loss import focal_loss
from train_bench.references.retinanet.model import UNUSED, RetinaNet
from train_bench.references.retinanet.recipe import optimizer_of, schedule_of
from train_bench.task import DataFacts


class Task(TrainingTask[Config, data.Batch]):
    """The benchmark `retinanet` and its smaller scale."""

    def _build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, parallel = self.config, self._parallel
        self._schedule = schedule_of(config)
        self._levels = [level.to(parallel.device) for level in anchors(config.model)]
        self._anchors = torch.cat(self._levels)
        self._means, self._deviations = (
            255.0 * torch.tensor(values, device=parallel.device).view(1, 3, 1, 1)
            for values in (config.data.means, config.data.deviations)
        )
        self._layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
        model = RetinaNet(config.model)
        weights = config.start_weights_file()
        if weights is not None:
            backbone_weights.load(model.backbone, weights, unused=UNUSED)
        model.to(parallel.device).to(memory_format=self._layout)
        return model, optimizer_of(model, config.hyperparameters)

    def _warm_up(self) -> None:
        self._run_warmup(self.synthetic(self._local_batch_size))
        images = data.synthetic(self.config, self.config.data.eval_batch_size)[0]
        codes, logits = self._infer(self._normalized(images))
        detect(codes[0], logits[0], self._levels, self.config.model.image_size)

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the images, start the loaders; rank 0 reads the truth of the evaluation."""
        config, parallel = self.config, self._parallel
        train, self._val = data.open_splits(config, prepared.folder_of(config))
        self._truth: COCO | None = coco_ap.index(self._val.path) if parallel.rank == 0 else None
        train_set = data.TrainingSet(
            split=train, data=config.data, side=config.model.image_size, seed=self._derived("augmentation")
        )
        eval_set = data.EvaluationSet(split=self._val)
        order = stream.Shuffled(samples=len(train.images), seed=self._seed)
        every = len(self._val.images)
        mine = stream.evaluation_order(every, config.data.eval_batch_size, parallel.rank, parallel.size)
        fingerprint = self._use_loaders(
            loading.loader(train_set, config.data, parallel.device, self._sampler(order), collate=data.lists),
            loading.loader(
                eval_set, config.data, parallel.device, mine, collate=data.lists, padding_from=every
            ),
        )
        return DataFacts(train_samples=len(train.images), eval_samples=every, fingerprint=fingerprint)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        device = self._parallel.device
        for images, *truth in self._micro_batches(batches):
            boxes, labels = ([each.to(device, non_blocking=True) for each in part] for part in truth)
            codes, logits = self._forward(self._normalized(images))
            self._backward(focal_loss(codes.float(), logits.float(), boxes, labels, self._anchors))
        self._optimizer_step(self._schedule(self._optimizer_steps))

    def _normalized(self, images: Sequence[Tensor]) -> Tensor:
        """uint8 images on this rank's device as float32, without mean and of deviation 1, then all of one size, by
        bilinear interpolation that changes the aspect ratio. Together where they have one size already."""
        alike = len({image.shape for image in images}) == 1
        parts = [torch.stack(list(images))] if alike else [image[None] for image in images]
        side = (self.config.model.image_size,) * 2
        found = []
        for part in parts:
            there = part.to(self._parallel.device, non_blocking=True).float()
            there = (there - self._means) / self._deviations
            if there.shape[2:] != side:
                there = functional.interpolate(there, size=side, mode="bilinear", align_corners=False)
            found.append(there)
        return torch.cat(found).contiguous(memory_format=self._layout)

    def evaluate(self) -> Quality:
        """`mAP` over the whole evaluation set; NaN once the loss or an answer of the network is not finite. Rank 0's
        answer counts."""
        diverged = non_finite(self._last_loss)
        detections = []
        for images, indices in self._evaluation():
            codes, logits = self._infer(self._normalized(images))
            diverged += non_finite(codes, logits)
            for index, places, kinds in zip(indices, codes, logits, strict=True):
                if index < len(self._val.images):
                    boxes = detect(places, kinds, self._levels, self.config.model.image_size)
                    number = int(self._val.images[index])
                    detections.append(box_quality.rows(boxes, self._val.annotations, number))
        if self._parallel.sum(diverged).item():
            return Quality(metrics={"mAP": math.nan})
        precision = box_quality.average_precision(self._truth, detections, self._parallel)
        return Quality(metrics={"mAP": precision})
