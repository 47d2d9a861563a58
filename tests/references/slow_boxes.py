"""A training sample of single-shot detection as the words say it, without a thought for speed: arrays for a few boxes,
one image after the other, Pillow's and torchvision's own changes of colour."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.ops import box_convert, box_iou
from torchvision.transforms import functional

from train_bench.references.ssd.crop import OPTIONS
from train_bench.references.ssd.data import TrainingSet


def sample(examples: TrainingSet, seed: int, index: int, position: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels, offsets and classes of all prior boxes."""
    rng = np.random.Generator(np.random.Philox(key=[seed, position]))
    split, number = examples.split, int(examples.split.images[index])
    with Image.open(split.folder / split.annotations.file_names[number]) as file:
        pixels = np.array(file.convert("RGB"))
    rows = split.annotations.rows(number)
    height, width = pixels.shape[:2]
    boxes = split.annotations.boxes[rows].astype(np.float64) / [width, height, width, height]
    (left, top, right, bottom), kept, boxes = crop(boxes, examples.max_samples, rng)
    pixels = pixels[int(top * height) : int(bottom * height), int(left * width) : int(right * width)]
    if rng.random() < examples.data.flip:
        pixels = pixels[:, ::-1].copy()
        boxes = np.stack([1.0 - boxes[:, 2], boxes[:, 1], 1.0 - boxes[:, 0], boxes[:, 3]], axis=1)
    image = Image.fromarray(pixels).resize((examples.side, examples.side), Image.Resampling.BILINEAR)
    image = jitter(image, examples, rng)
    labels = torch.from_numpy(split.annotations.labels[rows][kept])
    offsets, classes = targets(torch.from_numpy(boxes).float(), labels, examples.prior)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), offsets, classes


def crop(
    boxes: np.ndarray, max_samples: int, rng: np.random.Generator
) -> tuple[list[float], np.ndarray, np.ndarray]:
    while True:
        option = OPTIONS[int(rng.integers(len(OPTIONS)))]
        if option == "whole":
            return [0.0, 0.0, 1.0, 1.0], np.arange(len(boxes)), boxes
        for _ in range(max_samples):
            size = rng.uniform(0.3, 1.0, 2)
            if not 0.5 <= size[0] / size[1] <= 2.0:
                continue
            corner = np.array([rng.uniform(0.0, 1.0 - size[0]), rng.uniform(0.0, 1.0 - size[1])])
            window = np.concatenate([corner, corner + size])
            overlap = box_iou(torch.from_numpy(boxes), torch.from_numpy(window)[None]).numpy()
            if option != "any" and (overlap <= option).any():
                continue
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
            kept = np.flatnonzero(((centres > corner) & (centres < corner + size)).all(axis=1))
            if len(kept):
                shares = (boxes[kept] - np.tile(corner, 2)) / np.tile(size, 2)
                return window.tolist(), kept, shares.clip(0.0, 1.0)


def jitter(image: Image.Image, examples: TrainingSet, rng: np.random.Generator) -> Image.Image:
    data = examples.data
    changes = (
        (functional.adjust_brightness, 1.0, data.brightness),
        (functional.adjust_contrast, 1.0, data.contrast),
        (functional.adjust_saturation, 1.0, data.saturation),
        (functional.adjust_hue, 0.0, data.hue),
    )
    for number in rng.permutation(4):
        change, middle, reach = changes[number]
        if reach:
            image = change(image, float(rng.uniform(middle - reach, middle + reach)))
    return image


def targets(boxes: Tensor, labels: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    best, which = box_iou(boxes, box_convert(prior, "cxcywh", "xyxy")).max(dim=0)
    for number, box in enumerate(boxes):
        claimed = int(box_iou(box[None], box_convert(prior, "cxcywh", "xyxy"))[0].argmax())
        best[claimed], which[claimed] = 2.0, number
    return encode(boxes[which], prior), torch.where(best > 0.5, labels[which], 0)


def encode(boxes: Tensor, prior: Tensor) -> Tensor:
    """Corners as offsets from prior boxes (Liu et al., "SSD", 2016, equation 2), with the variances 0.1 and 0.2."""
    left, top, right, bottom = boxes.unbind(-1)
    x, y, width, height = prior.unbind(-1)
    return torch.stack(
        [
            ((left + right) / 2 - x) / width / 0.1,
            ((top + bottom) / 2 - y) / height / 0.1,
            ((right - left) / width).log() / 0.2,
            ((bottom - top) / height).log() / 0.2,
        ],
        dim=-1,
    )
