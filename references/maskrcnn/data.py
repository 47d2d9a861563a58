"""Data of the instance segmentation benchmark: preparation, access, examples of a run, synthetic batches.

A prepared folder has an annotation file in COCO format and a folder of images per split, and a manifest that is
written last: the origin, and per split how many images can be used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pycocotools import mask as rle
from torch import Tensor

from train_bench.errors import RequestError, UnknownName
from train_bench.references.maskrcnn.config import Config, Data, Hyperparameters
from train_bench.references.maskrcnn.images import (
    Batch,
    boxes_to_network,
    collate,
    masks_to_network,
    resized,
    to_network,
)
from train_bench.references.maskrcnn.proposals import Size
from train_bench.references.maskrcnn.targets import Objects, Polygons
from train_bench.references.parts import archives, coco, coco_2017, digit_scenes, loading, prepared
from train_bench.references.parts.generators import Generators
from train_bench.seeds import derive

SCENES = digit_scenes.Scenes(
    side=64, train=480, val=120, categories=3, objects=(1, 3), enlarge=(3, 4), filled=True, crossed=True
)
NUCLEI = "nuclei.zip"
FILES = {
    "coco": {
        split: (f"annotations/instances_{split}2017.json", f"{split}2017") for split in ("train", "val")
    },
    "digits": {split: (f"instances_{split}.json", split) for split in ("train", "val")},
    "nuclei": {split: (f"instances_{split}.json", ".") for split in ("train", "val")},
}
"""Per origin and split: the annotation file and the folder of the images."""

ONE_PIXEL = 1.0 + 1e-4
"""A side of a pixel, and what corners in float32 may add to it in an image of some thousand pixels."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Put the data set into `folder`; files that exist are kept. Never downloads."""
    origin = config.data.origin
    if origin not in FILES:
        raise UnknownName(what="data origin", name=origin, known=FILES)
    if origin == "digits":
        digit_scenes.write(folder, SCENES)
    elif origin == "coco":
        coco_2017.prepare(folder, source)
    else:
        _unpack_nuclei(config, folder, source)
    _find_start_weights(config)
    splits = open_splits(config, folder)
    if origin != "coco" and not config.data.verify:
        check_contents(config, splits)
    coco.write_manifest(folder, origin, splits)


def _find_start_weights(config: Config) -> None:
    file = config.start_weights_file()
    if file is not None and not file.is_file():
        raise RequestError(
            f"{config.benchmark} starts from the backbone weights in {file}, which is not there. Fetch the "
            "ImageNet weights MSRA/R-50 of Detectron and convert them as references/maskrcnn/README.md "
            "says, or name the file with benchmark.model.start_weights=FILE."
        )


def _unpack_nuclei(config: Config, folder: Path, source: Path | None) -> None:
    files = [folder / FILES["nuclei"][split][0] for split in ("train", "val")]
    if all(file.is_file() for file in files):
        return
    archive = (source or folder) / NUCLEI
    if not archive.is_file():
        raise RequestError(
            f"{config.benchmark} needs {NUCLEI}, which is not downloaded for you; {archive} is not there. Name "
            "the folder that holds it with source=FOLDER."
        )
    archives.unpack_zip(archive, folder)


Split = coco.Split


def open_splits(config: Config, folder: Path) -> tuple[Split, Split]:
    """Training and evaluation split in `folder`: the first touch of the data set."""
    file = folder / FILES[config.data.origin]["train"][0]
    if not file.is_file():
        raise prepared.not_there(config, folder)
    splits = _split(config, folder, "train"), _split(config, folder, "val")
    if config.data.verify:
        check_contents(config, splits)
    return splits


def check_contents(config: Config, splits: tuple[Split, Split]) -> None:
    """Decode every image, and compare pixels and annotations with the digest that is known."""
    digest = hashlib.sha256()
    for split in splits:
        coco.update_digest(digest, split)
        digest.update(json.dumps(split.annotations.segmentations).encode())
    prepared.check_contents(config, splits[0].path.parent, digest.hexdigest(), config.data.sha256)


def _split(config: Config, folder: Path, name: str) -> Split:
    """Images of a split; in training without those that have no object larger than a pixel."""
    file, images = FILES[config.data.origin][name]
    annotations = coco.read(folder / file, masks=True)
    used = np.arange(len(annotations.image_ids))
    wanted = config.eval_samples
    if name == "train":
        wanted = config.train_samples
        counts = np.concatenate([[0], np.cumsum(_trained_on(annotations, slice(None)))])[annotations.first]
        used = used[np.diff(counts) > 0]
    if len(used) != wanted:
        raise RequestError(
            f"{folder / file} has {len(used)} images that can be used; {config.benchmark} has {wanted}."
        )
    if len(annotations.category_ids) != config.model.num_classes - 1:
        raise RequestError(
            f"{folder / file} has {len(annotations.category_ids)} categories; with the background, model.num_classes "
            f"of {config.benchmark} is {config.model.num_classes}."
        )
    missing = coco.missing_images(folder / images, annotations)
    if missing:
        raise RequestError(f"{folder / images} lacks {len(missing)} images, {missing[0]} the first of them.")
    return Split(path=folder / file, annotations=annotations, images=used, folder=folder / images)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(coco.SplitSet):
    """Flipped examples by (image, position); the position decides the flip and the draws of the losses."""

    hyperparameters: Hyperparameters
    flip: float
    means: list[float]
    generators: Generators
    objects_of: np.ndarray
    """Image whose objects an image has: itself, unless labels are permuted."""

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, Objects, int]:
        image, position = item
        rng = self.generators.at(position)
        number, owner = int(self.split.images[image]), int(self.split.images[self.objects_of[image]])
        annotations = self.split.annotations
        before, other = _size(annotations, number), _size(annotations, owner)
        size = resized(*before, self.hyperparameters.min_image_size, self.hyperparameters.max_image_size)
        flip = bool(rng.random() < self.flip)
        pixels = self.split.pixels(number)
        part = annotations.rows(owner)
        rows = np.arange(part.start, part.stop)[_trained_on(annotations, part)]
        last = torch.tensor([0.0, 0.0, 1.0, 1.0])
        boxes = boxes_to_network(torch.from_numpy(annotations.boxes[rows]) - last, other, size, flip=flip)
        masks = masks_to_network(_masks(annotations, rows), other, size, flip=flip)
        objects = Objects(
            boxes=boxes,
            labels=torch.from_numpy(annotations.labels[rows]),
            masks=masks,
            seed=int(rng.integers(1 << 62)),
        )
        return to_network(pixels, size, self.means, flip=flip), objects, number


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(coco.SplitSet):
    """Images by number."""

    hyperparameters: Hyperparameters
    means: list[float]

    def __getitem__(self, number: int) -> tuple[Tensor, None, int]:
        annotations = self.split.annotations
        before = _size(annotations, number)
        size = resized(*before, self.hyperparameters.min_image_size, self.hyperparameters.max_image_size)
        pixels = self.split.pixels(number)
        return to_network(pixels, size, self.means, flip=False), None, number


def _trained_on(annotations: coco.Annotations, rows: slice) -> np.ndarray:
    """bool (rows,): which annotations are objects of the losses: no crowds, and both sides larger than a pixel.
    In the +1 convention a side of a pixel has its first and last pixel in the same place, and the reference
    drops such boxes; a smaller one, once enlarged, would overlap no anchor and be claimed by all."""
    boxes = annotations.boxes[rows].astype(np.float64)
    return (boxes[:, 2:] - boxes[:, :2] > ONE_PIXEL).all(axis=1) & ~annotations.crowd[rows]


def _size(annotations: coco.Annotations, number: int) -> Size:
    height, width = annotations.sizes[number].tolist()
    return height, width


def _masks(annotations: coco.Annotations, rows: np.ndarray) -> Polygons | Tensor:
    """Polygons if all objects of the image have them, else bitmaps of all."""
    masks = [annotations.segmentations[row] for row in rows]
    if masks and all(isinstance(mask, list) for mask in masks):
        return [[np.asarray(part, dtype=np.float64) for part in mask] for mask in masks]
    image = int(np.searchsorted(annotations.first, rows[0], side="right")) - 1
    height, width = _size(annotations, image)
    encoded = [_encoded(mask, height, width) for mask in masks]
    return torch.from_numpy(np.ascontiguousarray(rle.decode(encoded).transpose(2, 0, 1)))


def _encoded(mask: Any, height: int, width: int) -> Any:
    if isinstance(mask, list):
        return rle.merge(rle.frPyObjects(mask, height, width))
    return rle.frPyObjects(mask, height, width) if isinstance(mask["counts"], list) else mask


def owners(split: Split, *, permuted: bool) -> np.ndarray:
    """The image whose objects each image has: itself, or with `permuted` the next one."""
    own = np.arange(len(split.images))
    return np.roll(own, 1) if permuted else own


def _together(items: list[tuple[Tensor, Objects | None, int]]) -> Batch:
    images, objects, indices = zip(*items, strict=True)
    return collate(images, [each for each in objects if each is not None], indices)


def loader(
    dataset: TrainingSet | EvaluationSet, data: Data, device: torch.device, batches: Iterable
) -> loading.Loader:
    """Batches of `dataset` in the given order, from as many processes as configured."""
    return loading.loader(dataset, data, device, batches, collate=_together)


def synthetic(config: Config, samples: int, *, share: float = 1.0, seed: int = 0) -> Batch:
    """Synthetic batch of the largest images, or of a share of their pixels, from its own generator: noise, with a
    brighter rectangle as the object of each image. Reads no data."""
    generator = torch.Generator().manual_seed(seed)
    largest = config.hyperparameters.min_image_size, config.hyperparameters.max_image_size
    side, width = (round(pixels * math.sqrt(share)) for pixels in largest)
    images = 60.0 * torch.randn(samples, 3, side, width, generator=generator)
    objects = []
    for image in images:
        x, y = torch.randint(side // 2, (2,), generator=generator).tolist()
        extent = side // 4
        image[:, y : y + extent, x : x + extent] += 100.0
        masks = torch.zeros(1, side, width, dtype=torch.uint8)
        masks[0, y : y + extent, x : x + extent] = 1
        box = torch.tensor([[x, y, x + extent - 1, y + extent - 1]], dtype=torch.float32)
        label = 1 + torch.randint(config.model.num_classes - 1, (1,), generator=generator)
        objects.append(Objects(boxes=box, labels=label, masks=masks, seed=derive(seed, "synthetic")))
    return collate(list(images), objects, list(range(samples)))
