"""Detection by one network of two outputs: `class Task(DetectionTask[Config, Batch])` adds the benchmark's part of a
`TrainingTask`.

    build_model()           model and optimizer; `place_network(network, unused)` loads and moves it
    synthetic(samples)      a synthetic micro-batch
    open_splits()           the images of training and evaluation
    training_set(split)     augmented images with boxes, and `collate`
    evaluation_set(split)   images with their index, and `collate`
    train_step(batches)     one iteration
    normalize(images)       what the network is given
    IN_PARTS                whether `collate` gives rows of tensors, of which parts can be joined
    detect(boxes, logits)   the boxes that are found in one image
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from pycocotools.coco import COCO
from torch import Tensor, nn

from train_bench.quality import Quality
from train_bench.references.parts import backbone_weights, box_quality, coco, coco_ap, loading, stream
from train_bench.references.parts.layout import layout_of
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.references.parts.training import non_finite
from train_bench.task import DataFacts

C = TypeVar("C", bound=Any)
B = TypeVar("B", bound=tuple[Any, ...])


class ImageSet(loading.Samples, Protocol):
    """Images of a split."""

    def collate(self, examples: list[Any]) -> Any:
        """The batch of these examples."""


class DetectionTask(ServesEvaluationSet[C, B]):
    """Detection whose quality is the COCO AP of boxes.

    layout               memory format of images and network
    _means, _deviations  (1, 3, 1, 1), in the units of uint8 images
    _val                 the evaluation's split
    _truth               its annotations
    """

    IN_PARTS: ClassVar[bool] = False

    @abstractmethod
    def synthetic(self, samples: int) -> B:
        """A synthetic micro-batch; reads no data."""

    @abstractmethod
    def open_splits(self) -> tuple[coco.Split, coco.Split]:
        """Images of training and evaluation: the first access to the data set."""

    @abstractmethod
    def training_set(self, split: coco.Split) -> ImageSet:
        """Images with their boxes, by (index, position), augmented by the position."""

    @abstractmethod
    def evaluation_set(self, split: coco.Split) -> ImageSet:
        """Images with their index; an index beyond the end is padding."""

    @abstractmethod
    def normalize(self, images: Any) -> Tensor:
        """uint8 images of a batch as the network's input, on this rank's device."""

    @abstractmethod
    def detect(self, boxes: Tensor, logits: Tensor) -> box_quality.Detections:
        """The boxes in one image, from its part of the network's outputs."""

    def place_network(self, network: nn.Module, *, unused: tuple[str, ...]) -> None:
        """Load the configured start weights into `network.backbone`, but for those whose names begin with one of
        `unused`, and move the network to this rank's device, in the configured memory layout."""
        config, device = self.config, self.parallel.device
        self._means, self._deviations = (
            255.0 * torch.tensor(values, device=device).view(1, 3, 1, 1)
            for values in (config.data.means, config.data.deviations)
        )
        self.layout = layout_of(config.model.channels_last, self.parallel)
        file = config.start_weights_file()
        if file is not None:
            backbone_weights.load(network.get_submodule("backbone"), file, unused=unused)
        network.to(device).to(memory_format=self.layout)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        images = self.synthetic(self.config.data.eval_batch_size)[0]
        boxes, logits = self.infer(self.normalize(images))
        self.detect(boxes[0], logits[0])

    def open_data(self) -> DataFacts:
        """Find and check the images, read the truth of the evaluation, start the loaders."""
        data_config, parallel = self.config.data, self.parallel
        train, self._val = self.open_splits()
        self._truth: COCO = coco_ap.index(self._val.path)
        train_set, eval_set = self.training_set(train), self.evaluation_set(self._val)
        self._eval_set = eval_set
        order = stream.Shuffled(samples=len(train.images), seed=self.seed)
        count, every = len(self._val.images), len(self._val.annotations.image_ids)
        mine = stream.evaluation_order(count, data_config.eval_batch_size, parallel.rank, parallel.size)
        in_parts = self.IN_PARTS and self.config.model.image_size >= loading.LARGE_IMAGE
        fingerprint = self.use_loaders(
            loading.loader(
                train_set,
                data_config,
                parallel.device,
                self.sampler(order),
                collate=train_set.collate,
                in_parts=in_parts,
            ),
            loading.loader(
                eval_set,
                data_config,
                parallel.device,
                mine,
                collate=eval_set.collate,
                padding_from=count,
                in_parts=in_parts,
            ),
            eval_left_out=every - count,
        )
        return DataFacts(train_samples=len(train.images), eval_samples=every, fingerprint=fingerprint)

    def standardize(self, images: Tensor) -> Tensor:
        """uint8 (n, 3, height, width) images on this rank's device as float32, without mean and of deviation 1."""
        there = images.to(self.parallel.device, non_blocking=True).float()
        return (there - self._means) / self._deviations

    def evaluate(self) -> Quality:
        """`mAP` over the whole evaluation set, with the running statistics of batch norm; NaN once the loss or an
        output of the network is not finite. Rank 0's value counts."""
        diverged = non_finite(self.last_loss)
        detections: list[np.ndarray] = []
        for images, indices in self.evaluation_batches():
            boxes, logits = self.infer(self.normalize(images))
            diverged += non_finite(boxes, logits)
            detections += self._rows(indices, boxes, logits)
        if self.parallel.sum(diverged).item():
            return Quality(metrics={"mAP": math.nan})
        precision = box_quality.average_precision(self._truth, detections, self.parallel)
        return Quality(metrics={"mAP": precision})

    def _rows(self, indices: Sequence[int] | Tensor, boxes: Tensor, logits: Tensor) -> list[np.ndarray]:
        """The detections in each image of a batch that is not padding."""
        return [
            box_quality.rows(
                self.detect(places, kinds), self._val.annotations, int(self._val.images[int(index)])
            )
            for index, places, kinds in zip(indices, boxes, logits, strict=True)
            if index < len(self._val.images)
        ]

    def served_samples(self) -> int:
        """Images of the evaluation set."""
        return len(self._val.images)

    def served_sample(self, index: int) -> Any:
        """An image with its index, as a batch."""
        return self._eval_set.collate([self._eval_set[index]])

    def answers(self, samples: Sequence[Any]) -> Sequence[bytes]:
        """The boxes that are found in each image, float64 (boxes, 7) as in `box_quality.rows`."""
        found = []
        for images, indices in samples:
            (rows,) = self._rows(indices, *self.infer(self.normalize(images)))
            found.append(rows.tobytes())
        return found

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`mAP` of the boxes that were answered."""
        rows = [np.frombuffer(answer).reshape(-1, box_quality.COLUMNS) for answer in answers]
        return Quality(metrics={"mAP": box_quality.average_precision(self._truth, rows, self.parallel)})
