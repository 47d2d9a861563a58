"""COCO annotation files (Lin et al. 2014) and others in their format, as compact arrays.

Everything wrong is refused with the file and the id that is wrong. The one exception is what published files
themselves contain, which cannot be fetched better: boxes that reach over the border of their image, or have no
area within it. The former are clipped, the latter left out, and a warning counts both and names a few.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train_bench.core import files
from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import archives, prepared
from train_bench.references.parts.fingerprint import mapped
from train_bench.references.parts.images import FAULTS

log = logging.getLogger(__name__)

ARCHIVES = {
    "train2017.zip": "cced6f7f71b7629ddf16f17bbcfab6b2",
    "val2017.zip": "442b8da7639aecaf257c1dceb8ba8c80",
    "annotations_trainval2017.zip": "f4bbac642086de4f52a3fdda2de5fa2c",
}
"""MD5 of the archives of COCO 2017 as they are distributed."""

ROUNDING = 1.0
"""Pixels by which a box reaches over the border of its image where a corner and an extent were each rounded to
whole pixels. Boxes that reach further are named in the warning."""

MOST_KEPT = 64 << 20
"""Bytes of the decoded images of a split up to which a process that has read one of them keeps it."""

NAMED = 5
"""Annotations that a warning names of each kind."""

LARGEST_FILE = 1 << 30
"""Bytes; the larger annotation file of COCO 2017 has 448 MB."""

LARGEST_SIDE = 1 << 15
"""Pixels of an image, and how far corners of polygons may lie from its upper left one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """One split. Rows of `boxes`, `labels`, `areas`, `crowd`, `ids` and `segmentations` belong together and
    are sorted by image; image i has the rows `first[i]` to `first[i + 1]`.

    image_ids   int64 (images,) as the file has them
    file_names  one per image
    sizes       int64 (images, 2): height and width in pixels
    first       int64 (images + 1,)
    boxes       float32 (rows, 4): x_min, y_min, x_max, y_max in pixels, within the image
    labels      int64 (rows,): 1 to K, in the order of `category_ids`; 0 is the background
    areas       float32 (rows,), of the object, in square pixels
    crowd       bool (rows,)
    ids         int64 (rows,) as the file has them
    segmentations  polygons or run lengths as the file has them; empty if they were not requested
    clipped, left_out  boxes that reached over the border; boxes without area within the image
    """

    image_ids: np.ndarray
    file_names: list[str]
    sizes: np.ndarray
    first: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    areas: np.ndarray
    crowd: np.ndarray
    ids: np.ndarray
    segmentations: list[Any]
    category_ids: np.ndarray
    category_names: list[str]
    clipped: int
    left_out: int

    def rows(self, image: int) -> slice:
        """The rows of image number `image`."""
        return slice(int(self.first[image]), int(self.first[image + 1]))

    def with_boxes(self) -> np.ndarray:
        """int64: numbers of the images that have a box."""
        return np.flatnonzero(np.diff(self.first) > 0)


def read(path: Path, *, masks: bool = False, largest: int = LARGEST_FILE) -> Annotations:
    """The annotation file at `path`, of `largest` bytes at most; with `masks`, their segmentations too, each checked
    against the size of its image. Categories are numbered in the order of their ids."""
    content = _parse(path, masks=masks, largest=largest)
    categories = sorted(_table(path, content, "categories"), key=lambda entry: entry["id"])
    category_ids = _unique(path, "categories", categories)
    images = _table(path, content, "images")
    image_ids = _unique(path, "images", images)
    sizes = np.array([[entry["height"], entry["width"]] for entry in images], dtype=np.int64).reshape(-1, 2)
    if len(sizes) and sizes.min() < 1:
        raise RequestError(f"{path}: image {image_ids[sizes.min(axis=1) < 1][0]} has a side below 1 pixel.")
    if len(sizes) and sizes.max() > LARGEST_SIDE:
        large = image_ids[sizes.max(axis=1) > LARGEST_SIDE][0]
        raise RequestError(f"{path}: image {large} has a side above {LARGEST_SIDE} pixels.")
    rows = _table(path, content, "annotations")
    ids = _unique(path, "annotations", rows)
    image_of = _positions(path, ids, rows, "image_id", image_ids, "images")
    labels = _positions(path, ids, rows, "category_id", category_ids, "categories") + 1
    boxes, overhang = _boxes(path, ids, rows, sizes[image_of])
    kept = np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
    kept = kept[np.argsort(image_of[kept], kind="stable")]
    if masks:
        for row in kept:
            _check_mask(path, rows[row], sizes[image_of[row]])
    empty = np.setdiff1d(np.arange(len(rows)), kept)
    _warn(path, ids, overhang, empty)
    return Annotations(
        image_ids=image_ids,
        file_names=[str(entry["file_name"]) for entry in images],
        sizes=sizes,
        first=np.searchsorted(image_of[kept], np.arange(len(images) + 1)),
        boxes=boxes[kept].astype(np.float32),
        labels=labels[kept],
        areas=np.array([_area(path, rows[row]) for row in kept], dtype=np.float32),
        crowd=np.array([bool(rows[row].get("iscrowd", 0)) for row in kept], dtype=bool),
        ids=ids[kept],
        segmentations=[rows[row]["segmentation"] for row in kept] if masks else [],
        category_ids=category_ids,
        category_names=[str(entry.get("name", entry["id"])) for entry in categories],
        clipped=int((overhang > 0).sum()),
        left_out=len(empty),
    )


def _parse(path: Path, *, masks: bool, largest: int) -> Mapping[str, Any]:
    """The file's content; without `masks`, segmentations are dropped while it is read, which are nearly all
    of it."""

    def without_mask(entry: dict[str, Any]) -> dict[str, Any]:
        entry.pop("segmentation", None)
        return entry

    try:
        text = files.read_bytes(path, largest=largest).decode("utf-8")
        content = json.loads(text, object_hook=None if masks else without_mask)
    except OSError as error:
        raise RequestError(f"The annotation file {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The annotation file {path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise RequestError(f"The annotation file {path} holds no JSON object.")
    return content


_NEEDED: dict[str, dict[str, type]] = {
    "categories": {"id": int},
    "images": {"id": int, "file_name": str, "height": int, "width": int},
    "annotations": {"id": int, "image_id": int, "category_id": int, "bbox": list},
}
_WORDS = {int: "a whole number of at most 63 bits", str: "a name below the folder of images", list: "a list"}


def _table(path: Path, content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = content.get(name)
    if not isinstance(entries, list):
        raise RequestError(f"{path} has no list '{name}'; an annotation file in COCO format has one.")
    for number, entry in enumerate(entries):
        missing = [key for key in _NEEDED[name] if not isinstance(entry, dict) or key not in entry]
        if missing:
            raise RequestError(f"{path}: entry {number} of '{name}' lacks {', '.join(missing)}.")
        for key, kind in _NEEDED[name].items():
            if not _is_a(kind, entry[key]):
                raise RequestError(
                    f"{path}: entry {number} of '{name}' has {key} {_short(entry[key])}; {_WORDS[kind]} is needed."
                )
    return entries


def _is_a(kind: type, value: Any) -> bool:
    """True if a value has the kind that `_WORDS` describes."""
    if kind is int:
        return type(value) is int and abs(value) < 2**63
    if kind is str:
        return isinstance(value, str) and not Path(value).is_absolute() and ".." not in Path(value).parts
    return isinstance(value, kind)


def _short(value: Any) -> str:
    return repr(value)[:40] if type(value) is not int or abs(value) < 2**63 else "of more than 63 bits"


def _area(path: Path, row: Mapping[str, Any]) -> float:
    area = row.get("area", 0.0)
    if not _numbers([area], LARGEST_SIDE**2):
        raise RequestError(
            f"{path}: annotation {row['id']} has area {_short(area)}; square pixels are needed."
        )
    return float(area)


def _numbers(values: Sequence[Any], limit: float) -> bool:
    """True if all are finite and none further from 0 than `limit`."""
    if not set(map(type, values)) <= {int, float}:
        return False
    return -limit <= min(values) and max(values) <= limit and not math.isnan(sum(values))


def _unique(path: Path, name: str, entries: Iterable[Mapping[str, Any]]) -> np.ndarray:
    ids = np.array([entry["id"] for entry in entries], dtype=np.int64)
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise RequestError(f"{path}: the id {values[counts > 1][0]} occurs more than once in '{name}'.")
    return ids


def _positions(
    path: Path, ids: np.ndarray, rows: list[dict[str, Any]], key: str, known: np.ndarray, where: str
) -> np.ndarray:
    """Index of each row's `key` value in `known`."""
    wanted = np.array([row[key] for row in rows], dtype=np.int64)
    order = np.argsort(known, kind="stable")
    unknown = ~np.isin(wanted, known)
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise RequestError(
            f"{path}: annotation {ids[row]} has {key} {wanted[row]}, which is not in the list '{where}'."
        )
    return order[np.searchsorted(known, wanted, sorter=order)] if len(rows) else wanted


def _boxes(
    path: Path, ids: np.ndarray, rows: list[dict[str, Any]], sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """float64 (rows, 4) corners clipped to the images, and (rows,) pixels that each reached over the border."""
    for row, annotation in enumerate(rows):
        box = annotation["bbox"]
        if len(box) != 4 or not _numbers(box, 2.0**63) or min(box[2:]) < 0:
            raise RequestError(
                f"{path}: the bbox of annotation {ids[row]} (image {annotation['image_id']}) is {box}; finite x and "
                "y, and a width and a height of 0 or more are needed."
            )
    boxes = np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    limits = sizes[:, ::-1].astype(np.float64)
    inside = np.clip(boxes, 0.0, np.concatenate([limits, limits], axis=1))
    return inside, np.abs(boxes - inside).max(axis=1, initial=0.0)


def _warn(path: Path, ids: np.ndarray, overhang: np.ndarray, empty: np.ndarray) -> None:
    """Warn of the number of clipped boxes, the clipping beyond rounding, and the boxes left out."""
    clipped = int((overhang > 0).sum())
    if not clipped and not len(empty):
        return
    far = np.flatnonzero(overhang > ROUNDING)
    worst = far[np.argsort(-overhang[far], kind="stable")]
    beyond = _named(f"annotation {ids[row]} by {overhang[row]:.1f}" for row in worst.tolist())
    log.warning(
        "%s: %d boxes that reach over the border were clipped, %d of them by more than a pixel%s; %d without "
        "area within their image were left out%s",
        *(
            path,
            clipped,
            len(far),
            beyond,
            len(empty),
            _named(f"annotation {id}" for id in ids[empty].tolist()),
        ),
    )


def _named(things: Iterable[str]) -> str:
    """The first few in brackets; nothing if there are none."""
    names = list(things)
    return f" ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})" if names else ""


def _check_mask(path: Path, annotation: Mapping[str, Any], size: np.ndarray) -> None:
    """Refuse run lengths of another size than the image's, and what is neither run lengths nor polygons."""
    mask = annotation.get("segmentation")
    if isinstance(mask, dict) and "size" in mask and "counts" in mask:
        if mask["size"] != size.tolist():
            raise RequestError(
                f"{path}: the mask of annotation {annotation['id']} has size {mask['size']}; its image "
                f"(id {annotation['image_id']}) has {size.tolist()} (height, width)."
            )
        pixels = _pixels_of_runs(mask["counts"])
        if pixels != int(size.prod()):
            raise RequestError(
                f"{path}: the run lengths of annotation {annotation['id']} add up to {pixels} "
                f"pixels; its image has {int(size.prod())}."
            )
        return
    if not (isinstance(mask, list) and mask and all(map(_is_polygon, mask))):
        raise RequestError(
            f"{path}: annotation {annotation['id']} has no mask: 'segmentation' has to be polygons of three "
            "points or more, or run lengths."
        )


def _is_polygon(part: Any) -> bool:
    return isinstance(part, list) and len(part) >= 6 and len(part) % 2 == 0 and _numbers(part, LARGEST_SIDE)


def _pixels_of_runs(counts: Any) -> int | None:
    """Pixel count of run lengths, as numbers or in COCO's letters; None if they are neither.

    A letter has 5 bits from '0' on, the lowest first, and a sixth where the number goes on; from the fourth number on
    each is a difference to the last but one before it.
    """
    if isinstance(counts, list):
        lengths = counts if all(type(count) is int and count >= 0 for count in counts) else [-1]
    elif isinstance(counts, str):
        lengths, value, shift = [], 0, 0
        for bits in (ord(letter) - ord("0") for letter in counts):
            if not 0 <= bits < 64 or shift > 30:
                return None
            value |= (bits & 31) << shift
            shift += 5
            if bits < 32:
                value -= (bits >> 4) << shift
                lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
                value = shift = 0
        if shift:
            return None
    else:
        return None
    return None if min(lengths, default=0) < 0 else sum(lengths)


_ARRAYS = tuple(name for name in Annotations.__dataclass_fields__ if name != "segmentations")


def save(annotations: Annotations, path: Path) -> None:
    """Write all but the segmentations as plain arrays, in one step. `read` needs seconds and several times
    the size of a large file, `load` neither."""
    arrays: dict[str, Any] = {name: np.asarray(getattr(annotations, name)) for name in _ARRAYS}
    try:
        with files.whole_file(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise files.cannot_write(path, error) from error


def load(path: Path) -> Annotations:
    """Load the arrays of `save`; executes no code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in _ARRAYS}
    except (KeyError, *archives.DAMAGED) as error:
        raise RequestError(f"{path} cannot be read: {error}. Remove it and prepare again.") from error
    lists = {name: values[name].tolist() for name in ("file_names", "category_names")}
    counts = {name: int(values[name]) for name in ("clipped", "left_out")}
    return Annotations(**{**values, **lists, **counts, "segmentations": []})


def pixels(path: Path, size: np.ndarray) -> np.ndarray:
    """uint8 (height, width, 3) of the image at `path`, which has to have `size` (height, width)."""
    try:
        with files.opened(path) as file, Image.open(file) as image:
            if image.size != (size[1], size[0]):
                raise RequestError(
                    f"The image {path} has {image.size[0]} x {image.size[1]} pixels; its annotation file says "
                    f"{size[1]} x {size[0]}."
                )
            return np.array(image.convert("RGB"))
    except FAULTS as error:
        raise RequestError(f"The image {path} is missing or corrupt: {error}.") from error


def missing_images(folder: Path, annotations: Annotations) -> list[str]:
    """Annotated file names that are missing from `folder`. Lists folders instead of checking each file, which takes
    long on a network."""
    parents = {Path(name).parent for name in annotations.file_names}
    present = {
        str(parent / path.name)
        for parent in parents
        if (folder / parent).is_dir()
        for path in (folder / parent).iterdir()
    }
    return [name for name in annotations.file_names if name not in present]


def check_archive(path: Path) -> None:
    """Refuse an archive of COCO 2017 whose MD5 is not the published one; reads it in blocks."""
    digest = hashlib.md5(usedforsecurity=False)
    with files.opened(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != ARCHIVES[path.name]:
        raise RequestError(
            f"{path} has MD5 {digest.hexdigest()}; that of COCO 2017 is {ARCHIVES[path.name]}. Fetch it again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split on disk. For its stored set see `loading`.

    path         its annotation file
    annotations  content of that file
    images       int64: the numbers of the images that are used
    folder       their folder
    kept         decoded images by their number, before anything is changed in them; None in a split of more than
                 `MOST_KEPT` bytes of them. Each comes there when it is read first, which the clock sees.
    """

    path: Path
    annotations: Annotations
    images: np.ndarray
    folder: Path
    kept: dict[int, np.ndarray] | None = field(init=False)

    def __post_init__(self) -> None:
        small = 3 * int(self.annotations.sizes.prod(axis=1).sum()) <= MOST_KEPT
        object.__setattr__(self, "kept", {} if small else None)

    def __len__(self) -> int:
        return len(self.images)

    def files(self) -> list[Path]:
        """The files of the images that are used."""
        return [self.folder / self.annotations.file_names[number] for number in self.images]

    def pixels(self, number: int) -> np.ndarray:
        """uint8 (height, width, 3) of image `number` of the annotation file. Not to be changed."""
        found = None if self.kept is None else self.kept.get(number)
        if found is None:
            found = pixels(self.folder / self.annotations.file_names[number], self.annotations.sizes[number])
            if self.kept is not None:
                self.kept[number] = found
        return found

    def owner(self, index: int, *, permuted: bool) -> int:
        """Number of the image whose objects the image used as number `index` has: its own, or the next one's."""
        return int(self.images[(index + permuted) % len(self.images)])

    def objects(self, index: int, *, permuted: bool) -> tuple[np.ndarray, np.ndarray]:
        """float64 (objects, 4) corners as shares of the image, and int64 (objects,) labels."""
        owner = self.owner(index, permuted=permuted)
        rows = self.annotations.rows(owner)
        height, width = self.annotations.sizes[owner]
        corners = self.annotations.boxes[rows].astype(np.float64) / [width, height, width, height]
        return corners, self.annotations.labels[rows]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,) of the image that is used as number `index`, encoded."""
        return mapped(self.folder / self.annotations.file_names[self.images[index]])


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSet:
    """Samples that are read from a split; a benchmark adds `__getitem__`."""

    split: Split

    @property
    def stored(self) -> Split:
        """The stored samples."""
        return self.split


def update_digest(digest: Any, split: Split) -> None:
    """Feed a hash with all pixels and boxes of a split. Refuses images that are missing, corrupt or of another size
    than their annotation file states."""
    annotations = split.annotations
    for number in bar(range(len(annotations.file_names)), f"checking {split.folder.name}"):
        digest.update(split.pixels(number).tobytes())
    for array in (annotations.sizes, annotations.first, annotations.boxes.astype("<f4"), annotations.labels):
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())


def write_manifest(folder: Path, origin: str, splits: Sequence[Split]) -> None:
    """Mark the splits in `folder` as prepared unless they are marked already."""
    if not (folder / prepared.MANIFEST).exists():
        samples = {name: len(split) for name, split in zip(prepared.SPLITS, splits, strict=True)}
        files.write_json(folder / prepared.MANIFEST, {"origin": origin, "samples": samples})
