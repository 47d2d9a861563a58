"""Scenes of handwritten digits with boxes and masks, in COCO format: a detection task without a download.

scikit-learn's digits (Alpaydin and Kaynak 1998, UCI), enlarged by repetition and varied in brightness,
lie on a textured background. Where they are crossed, strokes in their own ink join them and strokes of
background cut them, so that a threshold rarely cuts out a whole one. All arithmetic is in integers, so that a
seed gives the same bytes on every machine. The first 897 digits are for training, the rest, written by other
people, for evaluation.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train_bench.core import files
from train_bench.errors import RequestError

TRAIN_DIGITS = 897
SPLITS = ("train", "val")
NOTE = "scenes.json"
ATTEMPTS = 50
INK = 4
"""Least level, of 16, that belongs to a digit."""

WIDTHS = (3, 4)
"""Least and greatest width of strokes, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenes:
    """Scene parameters. `objects` and `enlarge` are the smallest and largest number of digits, and of repetitions of
    each of their 8 x 8 pixels; `categories` digits from 0 on are used. A mask is the ink, or the silhouette if
    `filled`: ink and all that lies between ink in its row and in its column. If `crossed`, all digits of a scene have
    one ink, a stroke in it leads from each digit to some place of the scene, and a stroke of background passes through
    its middle; masks are as without strokes."""

    side: int
    train: int
    val: int
    categories: int
    objects: tuple[int, int]
    enlarge: tuple[int, int]
    filled: bool = False
    crossed: bool = False
    seed: int = 0


def crossed(config: Any) -> Scenes:
    """Scenes for box detectors, in the sizes of a benchmark's configuration."""
    return Scenes(
        side=config.model.image_size,
        train=config.train_samples or 0,
        val=config.eval_samples or 0,
        categories=config.model.num_classes,
        objects=(1, 3),
        enlarge=(3, 4),
        crossed=True,
    )


def write(folder: Path, scenes: Scenes) -> str:
    """Images in `folder/<split>/`, annotations in `folder/instances_<split>.json`; returns the sha256 of all
    pixels and annotations. Does nothing if they are there already."""
    note = folder / NOTE
    wanted = json.loads(json.dumps(asdict(scenes)))
    if note.exists() and files.read_json(note).get("scenes") == wanted:
        return str(files.read_json(note)["sha256"])
    digest = hashlib.sha256()
    for split in SPLITS:
        digest.update(_write_split(folder, split, scenes))
    files.write_json(note, {"scenes": wanted, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def _write_split(folder: Path, split: str, scenes: Scenes) -> bytes:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    part = slice(0, TRAIN_DIGITS) if split == "train" else slice(TRAIN_DIGITS, None)
    levels, classes = bunch.images[part].astype(np.int64), bunch.target[part]
    used = np.flatnonzero(classes < scenes.categories)
    rng = np.random.default_rng([scenes.seed, SPLITS.index(split)])
    (folder / split).mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(1, (scenes.train if split == "train" else scenes.val) + 1):
        pixels, placed = compose(levels[used], classes[used], scenes, rng)
        name = f"{number:06d}.png"
        Image.fromarray(pixels).save(folder / split / name)
        digest.update(pixels.tobytes())
        images.append({"id": number, "file_name": name, "height": scenes.side, "width": scenes.side})
        for digit, mask in placed:
            annotations.append(_annotation(len(annotations) + 1, number, digit, mask))
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": digit + 1, "name": str(digit)} for digit in range(scenes.categories)],
    }
    files.write_json(folder / f"instances_{split}.json", content)
    digest.update(json.dumps(content, sort_keys=True).encode())
    return digest.digest()


def compose(
    levels: np.ndarray, classes: np.ndarray, scenes: Scenes, rng: np.random.Generator
) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """uint8 (side, side, 3), and per digit its class and its mask, bool (side, side). Digits do not overlap:
    one that finds no free place in 50 attempts is left out, except for the first."""
    side = scenes.side
    coarse = rng.integers(0, 90, (side // 8 + 1, side // 8 + 1, 3)).repeat(8, 0).repeat(8, 1)[:side, :side]
    canvas = coarse + rng.integers(0, 40, (side, side, 3))
    ground = canvas.copy()
    common = rng.integers(150, 256, 3) if scenes.crossed else None
    taken = np.zeros((side, side), dtype=bool)
    windows: list[tuple[int, int, int]] = []
    placed: list[tuple[int, np.ndarray]] = []
    for _ in range(int(rng.integers(scenes.objects[0], scenes.objects[1] + 1))):
        chosen = int(rng.integers(len(levels)))
        scale = int(rng.integers(scenes.enlarge[0], scenes.enlarge[1] + 1))
        digit = levels[chosen].repeat(scale, 0).repeat(scale, 1)
        extent = len(digit)
        if extent > side:
            raise RequestError(f"A digit of {extent} pixels does not fit into a scene of {side} pixels.")
        ink = rng.integers(150, 256, 3) if common is None else common
        for _ in range(ATTEMPTS):
            top, left = (int(value) for value in rng.integers(0, side - extent + 1, 2))
            window = (slice(top, top + extent), slice(left, left + extent))
            if taken[window].any():
                continue
            taken[window] = True
            weight = digit[:, :, None]
            canvas[window] = (canvas[window] * (16 - weight) + ink * weight) // 16
            mask = np.zeros((side, side), dtype=bool)
            mask[window] = _silhouette(digit >= INK) if scenes.filled else digit >= INK
            placed.append((int(classes[chosen]), mask))
            windows.append((top, left, extent))
            break
    if common is not None:
        for top, left, extent in windows:
            corner = np.array([top, left])
            start, end = corner + rng.integers(0, extent, 2), rng.integers(0, side, 2)
            canvas[stroke(side, start, end, _width(rng))] = common
            start = corner + rng.integers(0, extent, 2)
            cut = stroke(side, start, 2 * (corner + extent // 2) - start, _width(rng))
            canvas[cut] = ground[cut]
    return canvas.astype(np.uint8), placed


def _width(rng: np.random.Generator) -> int:
    return int(rng.integers(WIDTHS[0], WIDTHS[1] + 1))


def stroke(side: int, start: np.ndarray, end: np.ndarray, width: int) -> np.ndarray:
    """bool (side, side): what lies within half a width of the straight line from `start` to `end` (row, column)."""
    place = np.indices((side, side)).transpose(1, 2, 0) - start
    line = end - start
    length = max(int((line * line).sum()), 1)
    along = (place * line).sum(axis=-1).clip(0, length)[:, :, None]
    off = place * length - along * line
    return np.asarray(4 * (off * off).sum(axis=-1) <= (width * length) ** 2)


def _silhouette(ink: np.ndarray) -> np.ndarray:
    """bool, as `ink`: True also between ink in a row and in a column at the same time."""
    between = [
        np.logical_or.accumulate(ink, axis)
        & np.flip(np.logical_or.accumulate(np.flip(ink, axis), axis), axis)
        for axis in (0, 1)
    ]
    return np.asarray(between[0] & between[1])


def _annotation(number: int, image: int, digit: int, mask: np.ndarray) -> dict[str, Any]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    x, y = int(columns[0]), int(rows[0])
    return {
        "id": number,
        "image_id": image,
        "category_id": digit + 1,
        "bbox": [x, y, int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y],
        "area": int(mask.sum()),
        "iscrowd": 0,
        "segmentation": {"size": list(mask.shape), "counts": run_lengths(mask)},
    }


def run_lengths(mask: np.ndarray) -> list[int]:
    """Uncompressed run lengths in column order, as COCO has them: the first counts zeros."""
    flat = mask.ravel(order="F")
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return [0, *runs] if flat[0] else runs
