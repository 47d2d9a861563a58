"""Prepared folders of images: per split an annotation file in COCO format, the same annotations as arrays, and a folder
of images as distributed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.errors import RequestError
from train_bench.references.parts import coco, prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Paths of a split: its annotation file, the same as arrays, and its images."""

    file: Path
    arrays: Path
    images: Path


def keep_arrays(places: Iterable[Place], *, largest: int = coco.LARGEST_FILE) -> None:
    """Read annotation files, of `largest` bytes at most, whose arrays are missing or older."""
    for place in places:
        made = place.arrays
        if not made.exists() or made.stat().st_mtime_ns < place.file.stat().st_mtime_ns:
            coco.save(coco.read(place.file, largest=largest), made)


def annotations_of(config: Any, place: Place) -> coco.Annotations:
    """Annotations of a prepared split; refuses one that is not prepared and names the command to type."""
    if not place.arrays.is_file():
        raise prepared.not_there(config, place.arrays.parent)
    return coco.load(place.arrays)


def split(
    config: Any, place: Place, found: coco.Annotations, used: np.ndarray, *, counted: int, wanted: int | None
) -> coco.Split:
    """The split of which the images `used` are used. Refused: another number of images, of categories, or images that
    are missing."""
    if counted != wanted:
        raise RequestError(
            f"{place.file} has {counted} images that can be used; {config.benchmark} has {wanted} in "
            f"'{place.arrays.stem}'."
        )
    if len(found.category_ids) != config.model.num_classes:
        raise RequestError(
            f"{place.file} has {len(found.category_ids)} categories; model.num_classes of {config.benchmark} is "
            f"{config.model.num_classes}."
        )
    missing = coco.missing_images(place.images, found)
    if missing:
        raise RequestError(f"{place.images} lacks {len(missing)} images, {missing[0]} the first of them.")
    return coco.Split(path=place.file, annotations=found, images=used, folder=place.images)


def check_contents(config: Any, splits: Sequence[coco.Split]) -> None:
    """Decode every image, and compare pixels and boxes with the digest that is known."""
    digest = hashlib.sha256()
    for one in splits:
        coco.update_digest(digest, one)
    prepared.check_contents(config, splits[0].path.parent, digest.hexdigest(), config.data.sha256)
