"""Rate of ResNet's loader on JPEGs of ImageNet's size. A module of `probes.py`; it has no command line."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bench.planned import composed
from train_bench.references.parts import loading
from train_bench.references.resnet.images import for_training
from train_bench.references.resnet.pixels import decode

COUNT, WIDTH, HEIGHT = 64, 500, 375
BATCH = 32


def photograph(rng: np.random.Generator, width: int, height: int) -> bytes:
    """Smooth noise as a JPEG of quality 90."""
    coarse = Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


class Photographs:
    """An item is decoded, cropped and resized as in a training run."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.data = composed(["benchmark=resnet"]).benchmark.data
        self.files = [photograph(rng, WIDTH, HEIGHT) for _ in range(COUNT)]

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(item)
        return for_training(decode(self.files[item % COUNT]), np.zeros((0, 4)), self.data, rng), item


def rate(device: str, workers: int, *, batches: int) -> float:
    """Images per second from so many processes, after the first batch of each."""
    samples = Photographs()
    items = [[BATCH * number + one for one in range(BATCH)] for number in range(batches)]
    loader = loading.loader(samples, replace(samples.data, workers=workers), torch.device(device), items)
    began, counted = 0.0, 0
    for number, _ in enumerate(loader):
        if number < workers:
            began = time.perf_counter()
        else:
            counted += BATCH
    return counted / (time.perf_counter() - began)
