"""Data of the object detection benchmark: preparation, access, examples of a run, synthetic batches.

OpenImages is used in place, as the script of the reference downloads it:

    train/data/*.jpg        train/labels/openimages-mlperf.json
    validation/data/*.jpg   validation/labels/openimages-mlperf.json

Next to these are the annotations as arrays (`train.npz`, `val.npz`) and, written last, the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts import backbone_weights, coco, coco_folder, digit_scenes, prepared
from train_bench.references.parts.bright_squares import bright_squares
from train_bench.references.parts.generators import Generators
from train_bench.references.retinanet.config import Config, Data

ORIGINS = ("openimages", "digits")
LABELS = "openimages-mlperf.json"
FOLDERS = {"train": "train", "val": "validation"}

LARGEST_FILE = 8 << 30
"""Bytes of an annotation file of OpenImages, whose size is not published."""

Batch = tuple[list[Tensor], list[Tensor], list[Tensor]]
"""Per image: uint8 (3, height, width), float32 (boxes, 4) corners in pixels of the image as the network sees it, int64
(boxes,) classes from 1."""

Split = coco.Split


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Prepare `folder`. OpenImages has to be there already: it is neither downloaded nor copied (`source` is not
    used)."""
    origin = config.data.origin
    if origin not in ORIGINS:
        raise UnknownName(what="data origin", name=origin, known=ORIGINS)
    file = config.start_weights_file()
    if file is not None:
        backbone_weights.check(file)
    if origin == "digits":
        digit_scenes.write(folder, digit_scenes.crossed(config))
    places = [_place(config, folder, split) for split in prepared.SPLITS]
    absent = [place.file for place in places if not place.file.is_file()]
    if absent:
        raise RequestError(
            f"There is no {absent[0]}. {config.benchmark} is prepared where the reference's script "
            "download_openimages_mlperf.sh has put it; name that folder with data_dir=FOLDER."
        )
    coco_folder.keep_arrays(places, largest=LARGEST_FILE)
    splits = open_splits(config, folder)
    if origin == "digits" and not config.data.verify:
        coco_folder.check_contents(config, splits)
    coco.write_manifest(folder, origin, splits)


def _place(config: Config, folder: Path, split: str) -> coco_folder.Place:
    arrays = folder / f"{split}.npz"
    if config.data.origin == "openimages":
        lies = folder / FOLDERS[split]
        return coco_folder.Place(file=lies / "labels" / LABELS, arrays=arrays, images=lies / "data")
    return coco_folder.Place(file=folder / f"instances_{split}.json", arrays=arrays, images=folder / split)


def open_splits(config: Config, folder: Path) -> tuple[Split, Split]:
    """Training and evaluation split in `folder`: the first touch of the data set. Both have all images, also those
    without a box (reference of the benchmark, `get_openimages`)."""
    wanted = (config.train_samples, config.eval_samples)
    train, val = (
        _whole(config, _place(config, folder, split), count)
        for split, count in zip(prepared.SPLITS, wanted, strict=True)
    )
    if config.data.verify:
        coco_folder.check_contents(config, (train, val))
    return train, val


def _whole(config: Config, place: coco_folder.Place, wanted: int | None) -> Split:
    """All images of a split."""
    found = coco_folder.annotations_of(config, place)
    every = np.arange(len(found.image_ids))
    return coco_folder.split(config, place, found, every, counted=len(every), wanted=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(coco.SplitSet):
    """Images with their boxes, by (index, position); the position decides whether one is flipped."""

    data: Data
    side: int
    generators: Generators

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        index, position = item
        number = int(self.split.images[index])
        boxes, labels = self.split.objects(index, permuted=self.data.permute_labels)
        pixels = self.split.pixels(number)
        rng = self.generators.at(position)
        if rng.random() < self.data.flip:
            pixels = pixels[:, ::-1]
            boxes = np.stack([1.0 - boxes[:, 2], boxes[:, 1], 1.0 - boxes[:, 0], boxes[:, 3]], axis=1)
        corners = torch.from_numpy((self.side * boxes).astype(np.float32))
        return channels_first(pixels), corners, torch.from_numpy(labels)

    def collate(self, examples: list[tuple[object, ...]]) -> tuple[list[object], ...]:
        """See `lists`."""
        return lists(examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(coco.SplitSet):
    """Images with their index; an index beyond the end is padding, black, of the first image's size, and not read."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= len(self.split.images):
            size = self.split.annotations.sizes[self.split.images[0]].tolist()
            return torch.zeros(3, *size, dtype=torch.uint8), index
        number = int(self.split.images[index])
        return channels_first(self.split.pixels(number)), index

    def collate(self, examples: list[tuple[object, ...]]) -> tuple[list[object], ...]:
        """See `lists`."""
        return lists(examples)


def channels_first(pixels: np.ndarray) -> Tensor:
    """uint8 (height, width, 3) -> uint8 (3, height, width)."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def lists(examples: list[tuple[object, ...]]) -> tuple[list[object], ...]:
    """A batch of examples, which may differ in size: a list of each of their parts."""
    return tuple(list(part) for part in zip(*examples, strict=True))


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch, which can be learnt. Reads no data."""
    shape = config.model
    images, boxes, labels = bright_squares(shape.image_size, shape.num_classes, samples, seed=seed)
    return list(images), list(boxes[:, None]), list(labels[:, None])
