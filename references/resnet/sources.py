"""Data sets as distributed, read one example at a time for packing.

Nothing here unpickles: the python version of CIFAR-10 is not read, its binary version is.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.parts import archives, prepared
from train_bench.references.parts.digit_scenes import stroke
from train_bench.references.resnet.pixels import decode
from train_bench.references.resnet.shards import Example

IMAGE_SUFFIXES = (".jpeg", ".jpg", ".png")
JPEG_QUALITY = 100
BOXES_FILE = "imagenet_2012_bounding_boxes.csv"
CIFAR_SHAPE = (32, 32, 3)
CIFAR_RECORD = 1 + 3 * 32 * 32
CIFAR_CLASSES = 10
LARGEST_IMAGE, LARGEST_BOXES, LARGEST_BATCH = 64 * 2**20, 256 * 2**20, 1000 * 2**20
"""Bytes of an image, of the file of object boxes, and of a file of the binary version of CIFAR-10."""

DIGITS_TRAIN, DIGITS_SEED, DIGITS_SIDE = 897, 1, 28
DIGITS_DRAWN = {"train": 3, "val": 1}
"""Images that are made of each digit."""
DIGITS_EXTENTS = (12, 21)
"""Least height and width of a digit in pixels, and one more than the largest."""
DIGITS_BRIGHTNESS = (8, 16)
"""Least factor of its levels, and one more than the largest."""
DIGITS_STROKE = (2, 4)
"""Least width in pixels of the stroke that leads away from a digit, and one more than the largest."""
NO_BOXES = np.zeros((0, 4), dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set to be packed. `shape` is that of raw pixels, None for encoded images."""

    counts: dict[str, int]
    example: Callable[[str, int], Example]
    classes: Sequence[str]
    shape: tuple[int, int, int] | None


def list_classes(root: Path, split: str) -> tuple[list[Path], np.ndarray, list[str]]:
    """Images of `root/<split>/<class>/*` in sorted order, their labels, and the sorted class names."""
    folder = root / split
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
        paths += images
        labels += [label] * len(images)
    return paths, np.array(labels, dtype=np.int64), classes


def imagenet(root: Path) -> Source:
    """ILSVRC2012 as `train/<synset>/*.JPEG`, `val/<synset>/*`, with object boxes in the csv of the reference (file
    name, x_min, y_min, x_max, y_max) where it is in the same folder."""
    listed = {split: list_classes(root, split) for split in prepared.SPLITS}
    boxes = _read_boxes(root / BOXES_FILE)

    def example(split: str, index: int) -> Example:
        path, label = listed[split][0][index], int(listed[split][1][index])
        of_image = boxes.get(path.name, NO_BOXES) if split == "train" else NO_BOXES
        content = as_rgb_jpeg(files.read_bytes(path, largest=LARGEST_IMAGE))
        return Example(content=content, label=label, boxes=of_image)

    counts = {split: len(listed[split][0]) for split in prepared.SPLITS}
    return Source(counts=counts, example=example, classes=listed["train"][2], shape=None)


def as_rgb_jpeg(content: bytes) -> bytes:
    """PNG or CMYK images re-encoded as RGB JPEG of quality 100; every other image untouched."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format != "PNG" and image.mode != "CMYK":
            return content
        repaired = io.BytesIO()
        image.convert("RGB").save(repaired, format="JPEG", quality=JPEG_QUALITY)
    return repaired.getvalue()


def _read_boxes(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    rows: dict[str, list[list[float]]] = defaultdict(list)
    try:
        content = files.read_bytes(path, largest=LARGEST_BOXES).decode("utf-8")
        for number, (name, *corners) in enumerate(
            filter(None, csv.reader(io.StringIO(content, newline=""))), start=1
        ):
            box = [float(corner) for corner in corners]
            if len(box) != 4 or not all(map(math.isfinite, box)):
                raise ValueError(f"line {number} has {corners}, where four shares of the image are needed")
            rows[name].append(box)
    except (OSError, ValueError, csv.Error) as error:
        raise RequestError(
            f"The object boxes {path} cannot be read: {error}. Make the file again."
        ) from error
    return {name: np.array(boxes, dtype=np.float32) for name, boxes in rows.items()}


def cifar10(root: Path) -> Source:
    """CIFAR-10 as its binary version, as class folders, or as train.zip and test.zip of such folders."""
    for folder in (root, root / "cifar-10-batches-bin"):
        if (folder / "test_batch.bin").exists():
            return _cifar10_binary(folder)
    if (root / "train.zip").exists() and (root / "test.zip").exists():
        return _cifar10_zip(root)
    if (root / "train").is_dir():
        return _cifar10_folders(root)
    raise RequestError(
        f"{root} holds no CIFAR-10 that can be read: neither data_batch_1.bin to 5 with test_batch.bin "
        "(the binary version), nor train/<class>/ with test/<class>/, nor train.zip with test.zip."
    )


def _cifar10_binary(root: Path) -> Source:
    """Records of one label byte and 3072 bytes: the red, green and blue plane, row by row."""
    files = {"train": sorted(root.glob("data_batch_*.bin")), "val": [root / "test_batch.bin"]}
    if not files["train"]:
        raise RequestError(f"{root} has test_batch.bin, but no data_batch_1.bin to 5. Fetch the data again.")
    records = {
        split: np.concatenate([_cifar10_records(path) for path in paths]) for split, paths in files.items()
    }

    def example(split: str, index: int) -> Example:
        record = records[split][index]
        pixels = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
        return Example(content=pixels.tobytes(), label=int(record[0]), boxes=NO_BOXES)

    counts = {split: len(table) for split, table in records.items()}
    names = [str(label) for label in range(CIFAR_CLASSES)]
    return Source(counts=counts, example=example, classes=names, shape=CIFAR_SHAPE)


def _cifar10_records(path: Path) -> np.ndarray:
    """uint8 (records, 3073)."""
    try:
        content = np.frombuffer(files.read_bytes(path, largest=LARGEST_BATCH), dtype=np.uint8)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    labels = content[::CIFAR_RECORD]
    if content.size % CIFAR_RECORD or (labels >= CIFAR_CLASSES).any():
        raise RequestError(
            f"{path} has {content.size} bytes and the label {labels.max(initial=0)}; records of CIFAR-10 have "
            f"{CIFAR_RECORD} bytes and labels below {CIFAR_CLASSES}. Fetch it again."
        )
    return content.reshape(-1, CIFAR_RECORD)


def _cifar10_folders(root: Path) -> Source:
    second = "test" if (root / "test").is_dir() else "val"
    listed = {"train": list_classes(root, "train"), "val": list_classes(root, second)}

    def example(split: str, index: int) -> Example:
        paths, labels, _ = listed[split]
        content = files.read_bytes(paths[index], largest=LARGEST_IMAGE)
        return _cifar10_pixels(content, int(labels[index]))

    counts = {split: len(listed[split][0]) for split in prepared.SPLITS}
    return Source(counts=counts, example=example, classes=listed["train"][2], shape=CIFAR_SHAPE)


def _cifar10_zip(root: Path) -> Source:
    zipped = {"train": archives.Zip(root / "train.zip"), "val": archives.Zip(root / "test.zip")}
    members = {
        split: sorted(name for name in archive.names if name.lower().endswith(IMAGE_SUFFIXES))
        for split, archive in zipped.items()
    }
    classes = sorted({Path(name).parent.name for name in members["train"]})

    def example(split: str, index: int) -> Example:
        name = members[split][index]
        folder = Path(name).parent.name
        if folder not in classes:
            raise RequestError(f"{root / 'test.zip'} has the class '{folder}', which train.zip has not.")
        content = zipped[split].read(name, LARGEST_IMAGE)
        return _cifar10_pixels(content, classes.index(folder))

    counts = {split: len(names) for split, names in members.items()}
    return Source(counts=counts, example=example, classes=classes, shape=CIFAR_SHAPE)


def _cifar10_pixels(content: bytes, label: int) -> Example:
    with Image.open(io.BytesIO(content)) as image:
        if image.size != CIFAR_SHAPE[:2]:
            raise RequestError(
                f"A CIFAR-10 image has {image.size[0]} x {image.size[1]} pixels; allowed are 32 x 32."
            )
    pixels = decode(content)
    return Example(content=pixels.tobytes(), label=label, boxes=NO_BOXES)


def digits() -> Source:
    """The handwritten digits that scikit-learn carries (Alpaydin and Kaynak 1998, UCI): 1797 images of
    8x8 with grey levels 0 to 16. The first 897 are for training, three times each, the last 900 for evaluation,
    written by other people. Every time a digit has a height, a width, a place in a black square and a brightness of its
    own, and a stroke in its ink leads from it to somewhere: pixels say little before one has learnt what does not
    matter, and neither what is connected nor what is not black is the digit alone.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = np.asarray(bunch.images).astype(np.int64)
    parts = {"train": range(DIGITS_TRAIN), "val": range(DIGITS_TRAIN, len(levels))}

    def example(split: str, index: int) -> Example:
        time, number = divmod(index, len(parts[split]))
        position = parts[split][number]
        pixels = _drawn(levels[position], np.random.default_rng([DIGITS_SEED, position, time]))
        return Example(content=pixels.tobytes(), label=int(bunch.target[position]), boxes=NO_BOXES)

    return Source(
        counts={split: DIGITS_DRAWN[split] * len(part) for split, part in parts.items()},
        example=example,
        classes=[str(label) for label in range(10)],
        shape=(DIGITS_SIDE, DIGITS_SIDE, 1),
    )


def _drawn(levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """uint8 (28, 28) from levels (8, 8) of 0 to 16, all in integers: the same bytes on every machine."""
    extent = rng.integers(*DIGITS_EXTENTS, size=2)
    height, width = extent.tolist()
    top, left = corner = rng.integers(DIGITS_SIDE - extent + 1)
    rows, columns = (np.arange(side) * len(levels) // side for side in (height, width))
    pixels = np.zeros((DIGITS_SIDE, DIGITS_SIDE), dtype=np.uint8)
    ink = levels[rows][:, columns] * int(rng.integers(*DIGITS_BRIGHTNESS))
    pixels[top : top + height, left : left + width] = ink
    start, end = corner + rng.integers(extent), rng.integers(DIGITS_SIDE, size=2)
    pixels[stroke(DIGITS_SIDE, start, end, int(rng.integers(*DIGITS_STROKE)))] = ink.max()
    return pixels
