"""Light-weight object detection: SSD, trained to a target mean average precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from train_bench.references.parts import box_quality, prepared
from train_bench.references.parts.detection_task import DetectionTask
from train_bench.references.parts.generators import Generators
from train_bench.references.ssd import data
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.detections import detect
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD, UNUSED, tensor_names
from train_bench.references.ssd.priors import priors
from train_bench.references.ssd.recipe import optimizer_of, schedule_of


class Task(DetectionTask[Config, data.Batch]):
    """The benchmark `ssd` and its smaller scales."""

    IN_PARTS = True

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, parallel = self.config, self.parallel
        self._schedule = schedule_of(config)
        self._prior = priors(config.model)
        self._prior_there = self._prior.to(parallel.device)
        network = SSD(config.model)
        self.tensor_names = tensor_names(network)  # 119 for the full model
        self.place_network(network, unused=UNUSED)
        model = parallel.batch_norm(network, ranks=config.batch_norm_ranks(parallel.size))
        return model, optimizer_of(model, config.hyperparameters)

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_splits(self) -> tuple[data.Split, data.Split]:
        """Images of training and evaluation."""
        return data.open_splits(self.config, prepared.folder_of(self.config))

    def training_set(self, split: data.Split) -> data.TrainingSet:
        """Crops with the targets of all prior boxes."""
        return data.TrainingSet(
            split=split,
            data=self.config.data,
            prior=self._prior,
            side=self.config.model.image_size,
            max_samples=self.config.hyperparameters.max_samples,
            generators=Generators(self.derived_seed("augmentation")),
        )

    def evaluation_set(self, split: data.Split) -> data.EvaluationSet:
        """Whole images, resized."""
        return data.EvaluationSet(split=split, side=self.config.model.image_size)

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        for images, *truth in self.micro_batches(batches):
            targets, classes = (part.to(self.parallel.device, non_blocking=True) for part in truth)
            offsets, logits = self.forward(self.normalize(images))
            self.backward(multibox_loss(offsets.float(), logits.float(), targets, classes))
        self.step(self._schedule(self.optimizer_steps))

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 images on this rank's device as float32, without mean and of deviation 1."""
        return self.standardize(images).contiguous(memory_format=self.layout)

    def detect(self, boxes: Tensor, logits: Tensor) -> box_quality.Detections:
        """The boxes in one image, from offsets to the prior boxes and logits."""
        return detect(boxes, logits, self._prior_there)
