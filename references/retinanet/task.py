"""Object detection: RetinaNet, trained to a target mean average precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.parts import box_quality, prepared
from train_bench.references.parts.detection_task import DetectionTask
from train_bench.references.parts.generators import Generators
from train_bench.references.retinanet import data
from train_bench.references.retinanet.anchors import anchors
from train_bench.references.retinanet.config import Config
from train_bench.references.retinanet.detections import detect
from train_bench.references.retinanet.loss import focal_loss
from train_bench.references.retinanet.model import UNUSED, RetinaNet
from train_bench.references.retinanet.recipe import optimizer_of, schedule_of


class Task(DetectionTask[Config, data.Batch]):
    """The benchmark `retinanet` and its smaller scale."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, parallel = self.config, self.parallel
        self._schedule = schedule_of(config)
        self._levels = [level.to(parallel.device) for level in anchors(config.model)]
        self._anchors = torch.cat(self._levels)
        model = RetinaNet(config.model)
        self.place_network(model, unused=UNUSED)
        return model, optimizer_of(model, config.hyperparameters)

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_splits(self) -> tuple[data.Split, data.Split]:
        """Images of training and evaluation."""
        return data.open_splits(self.config, prepared.folder_of(self.config))

    def training_set(self, split: data.Split) -> data.TrainingSet:
        """Images of any size with their boxes."""
        config = self.config
        return data.TrainingSet(
            split=split,
            data=config.data,
            side=config.model.image_size,
            generators=Generators(self.derived_seed("augmentation")),
        )

    def evaluation_set(self, split: data.Split) -> data.EvaluationSet:
        """Images of any size."""
        return data.EvaluationSet(split=split)

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        device = self.parallel.device
        for images, *truth in self.micro_batches(batches):
            boxes, labels = ([each.to(device, non_blocking=True) for each in part] for part in truth)
            codes, logits = self.forward(self.normalize(images))
            self.backward(focal_loss(codes.float(), logits.float(), boxes, labels, self._anchors))
        self.step(self._schedule(self.optimizer_steps))

    def normalize(self, images: Sequence[Tensor]) -> Tensor:
        """uint8 images on this rank's device as float32, without mean and of deviation 1, then all of one size, by
        bilinear interpolation that changes the aspect ratio. Together where they have one size already."""
        alike = len({image.shape for image in images}) == 1
        images = [image.to(self.parallel.device, non_blocking=True) for image in images]
        parts = [torch.stack(images)] if alike else [image[None] for image in images]
        side = (self.config.model.image_size,) * 2
        found = []
        for part in parts:
            there = self.standardize(part)
            if there.shape[2:] != side:
                there = functional.interpolate(there, size=side, mode="bilinear", align_corners=False)
            found.append(there)
        return torch.cat(found).contiguous(memory_format=self.layout)

    def detect(self, boxes: Tensor, logits: Tensor) -> box_quality.Detections:
        """The boxes in one image, from codes of the anchors and logits."""
        return detect(boxes, logits, self._levels, self.config.model.image_size)
