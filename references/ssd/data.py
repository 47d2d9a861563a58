"""Data of the single-shot detection benchmark: preparation, access, examples of a run, synthetic batches.

A prepared folder has, per split, an annotation file in COCO format, the same annotations as arrays
(`<split>.npz`), and a folder of images as they were distributed; the manifest is written last.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts import (
    archives,
    backbone_weights,
    coco,
    coco_2017,
    coco_folder,
    digit_scenes,
    prepared,
)
from train_bench.references.parts.bright_squares import bright_squares
from train_bench.references.parts.generators import Generators
from train_bench.references.ssd.config import Config, Data
from train_bench.references.ssd.images import for_evaluation, for_training
from train_bench.references.ssd.priors import match, priors

ORIGINS = ("coco", "digits", "bccd")
BCCD = "BCCD.zip"

Example = tuple[np.ndarray, np.ndarray, np.ndarray]
"""uint8 (side, side, 3), float32 (boxes, 4) corners as shares of the image, int64 (boxes,) classes."""

Batch = tuple[Tensor, Tensor, Tensor]
"""uint8 (samples, 3, side, side), float32 (samples, priors, 4) offsets, int64 (samples, priors) classes."""

Split = coco.Split


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Put the data set into `folder`; verified and resumable. Never downloads.

    Every image is decoded once where the data set has a digest or is small; COCO's archives have theirs.
    """
    origin = config.data.origin
    if origin not in ORIGINS:
        raise UnknownName(what="data origin", name=origin, known=ORIGINS)
    file = config.start_weights_file()
    if file is not None:
        backbone_weights.check(file)
    if origin == "digits":
        digit_scenes.write(folder, digit_scenes.crossed(config))
    elif origin == "coco":
        coco_2017.prepare(folder, source)
    elif not all(_place(config, folder, split).file.exists() for split in prepared.SPLITS):
        _unpack_bccd(config, folder, source)
    coco_folder.keep_arrays(_place(config, folder, split) for split in prepared.SPLITS)
    splits = open_splits(config, folder)
    if origin != "coco" and not config.data.verify:
        coco_folder.check_contents(config, splits)
    coco.write_manifest(folder, origin, splits)


def _unpack_bccd(config: Config, folder: Path, source: Path | None) -> None:
    if source is None or not (source / BCCD).is_file():
        raise RequestError(
            f"{config.benchmark} is prepared from {BCCD} (JPEGImages/ and instances_<split>.json), which is not "
            f"downloaded for you; it is not in source={source}. Name its folder with source=FOLDER."
        )
    archives.unpack_zip(source / BCCD, folder)


def _place(config: Config, folder: Path, split: str) -> coco_folder.Place:
    arrays = folder / f"{split}.npz"
    if config.data.origin == "coco":
        file, images = coco_2017.annotation_file(folder, split), coco_2017.image_folder(folder, split)
        return coco_folder.Place(file=file, arrays=arrays, images=images)
    images = folder / split if config.data.origin == "digits" else folder
    return coco_folder.Place(file=folder / f"instances_{split}.json", arrays=arrays, images=images)


def open_splits(config: Config, folder: Path) -> tuple[Split, Split]:
    """Training and evaluation split in `folder`: the first access to the data set. Images without a box train nobody,
    and in an evaluation nothing is looked for in them, though they count as samples (reference of the benchmark)."""
    train, val = (_place(config, folder, split) for split in prepared.SPLITS)
    known, judged = (coco_folder.annotations_of(config, place) for place in (train, val))
    used, shown = known.with_boxes(), judged.with_boxes()
    every = len(judged.image_ids)
    splits = (
        coco_folder.split(config, train, known, used, counted=len(used), wanted=config.train_samples),
        coco_folder.split(config, val, judged, shown, counted=every, wanted=config.eval_samples),
    )
    if config.data.verify:
        coco_folder.check_contents(config, splits)
    return splits


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(coco.SplitSet):
    """Augmented images with their boxes, by (index, position); the position decides the augmentation. `collate` gives
    the targets of all prior boxes."""

    data: Data
    prior: Tensor
    side: int
    max_samples: int
    generators: Generators

    def __getitem__(self, item: tuple[int, int]) -> Example:
        index, position = item
        rng = self.generators.at(position)
        number = int(self.split.images[index])
        boxes, labels = self.split.objects(index, permuted=self.data.permute_labels)
        pixels, kept, boxes = for_training(
            self.split.pixels(number), boxes, self.data, self.side, self.max_samples, rng
        )
        return pixels, boxes.astype(np.float32), labels[kept]

    def collate(self, examples: list[Example]) -> Batch:
        """Stack, match: all images at once."""
        pixels, boxes, labels = zip(*examples, strict=True)
        images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        every_box, every_label = (torch.from_numpy(np.concatenate(each)) for each in (boxes, labels))
        return images, *match(every_box, every_label, [len(each) for each in labels], self.prior)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(coco.SplitSet):
    """Images with their index; an index beyond the end is padding, black and not read."""

    side: int

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= len(self.split.images):
            return torch.zeros(3, self.side, self.side, dtype=torch.uint8), index
        number = int(self.split.images[index])
        return for_evaluation(self.split.pixels(number), self.side), index

    def collate(self, examples: list[tuple[Tensor, int]]) -> list[Tensor]:
        """Images and their indices, as tensors."""
        batch: list[Tensor] = default_collate(examples)
        return batch


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch, which can be learnt. Reads no data."""
    shape = config.model
    images, boxes, labels = bright_squares(shape.image_size, shape.num_classes, samples, seed=seed)
    return images, *match(boxes / shape.image_size, labels, [1] * samples, priors(shape))
