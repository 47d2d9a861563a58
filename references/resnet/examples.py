"""Examples of a run, and synthetic batches for the warm-up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.references.parts.generators import Generators
from train_bench.references.resnet import shards
from train_bench.references.resnet.config import Config, Data
from train_bench.references.resnet.images import for_evaluation, for_training

PADDING_LABEL = -1
"""The label of examples that fill the last evaluation batch; no prediction equals it."""

Batch = tuple[Tensor, Tensor]
"""float32 (samples, 3, image_size, image_size) from 0 to 255, and int64 (samples,) labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(Dataset):
    """Augmented examples by (index, position); the position decides the augmentation."""

    images: shards.Images
    data: Data
    generators: Generators

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, int]:
        index, position = item
        pixels, boxes = self.images[index]
        crop = for_training(pixels, boxes, self.data, self.generators.at(position))
        return crop, int(self.images.labels[index])

    @property
    def stored(self) -> shards.Images:
        """The stored samples."""
        return self.images


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(Dataset):
    """Centre crops by index; an index beyond the end is padding, black and not read."""

    images: shards.Images
    data: Data

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= len(self.images.labels):
            return torch.zeros(3, self.data.image_size, self.data.image_size), PADDING_LABEL
        pixels, _ = self.images[index]
        return for_evaluation(pixels, self.data), int(self.images.labels[index])

    @property
    def stored(self) -> shards.Images:
        """The stored samples."""
        return self.images


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch from its own generator: noise over a grey level per class, which can be learnt. Reads nothing."""
    generator = torch.Generator().manual_seed(seed)
    side = config.data.image_size
    labels = torch.randint(config.model.num_classes, (samples,), generator=generator)
    level = 255.0 * torch.rand(config.model.num_classes, 3, 1, 1, generator=generator)
    noise = 255.0 * torch.rand(samples, 3, side, side, generator=generator)
    return 0.5 * noise + 0.5 * level[labels], labels
