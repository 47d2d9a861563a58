"""resnet_mini for trainers that are not ours: its data set, network, optimizer and rate, by the definition of the
reference. What a program adds to train under the clock is in the program."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tests.references.configs import resnet
from train_bench import Benchmark
from train_bench.references.resnet import images, pixels, sources
from train_bench.references.resnet.model import ResNet
from train_bench.references.resnet.recipe import optimizer_of, schedule_of
from train_bench.seeds import derive

CONFIG = resnet("resnet_mini")
BATCH = CONFIG.hyperparameters.global_batch_size
TRAIN, EVAL = CONFIG.train_samples, CONFIG.eval_samples
EPOCHS = int(os.environ.get("EPOCHS", CONFIG.evaluation.until))


def run(folder: str | None = None, seed: str | None = None) -> Benchmark:
    """The run of a campaign, or one by itself."""
    return Benchmark(
        "resnet_mini",
        "mini-1.0",
        folder=folder,
        seed=None if seed is None else int(seed),
        until=EPOCHS,
        samples_per_epoch=TRAIN,
    )


def hyperparameters(ranks: int = 1) -> dict[str, Any]:
    """What is announced."""
    asked = asdict(CONFIG.for_ranks(ranks).hyperparameters)
    return {key: value for key, value in asked.items() if value is not None}


@dataclass
class Digits(Dataset):
    """The digits of a split; the first that is asked for reads them all. `augment` is the seed of random crops."""

    split: str
    augment: int | None = None
    pixels: list[np.ndarray] | None = None

    def __len__(self) -> int:
        return TRAIN if self.split == "train" else EVAL

    def _read(self) -> None:
        source = sources.digits()
        assert source.shape is not None
        side = source.shape[:2]
        found = [source.example(self.split, index) for index in range(len(self))]
        grey = [np.frombuffer(one.content, np.uint8).reshape(*side, 1) for one in found]
        self.pixels, self.labels = [pixels.as_rgb(one) for one in grey], [one.label for one in found]
        self.rng = np.random.default_rng(self.augment)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.pixels is None:
            self._read()
        assert self.pixels is not None
        if self.augment is None:
            image = images.for_evaluation(self.pixels[index], CONFIG.data)
        else:
            image = images.for_training(self.pixels[index], sources.NO_BOXES, CONFIG.data, self.rng)
        return image - CONFIG.data.means[0], self.labels[index]


def splits(seed: int, rank: int = 0) -> tuple[Digits, Digits]:
    """For training and evaluation; nothing is read."""
    return Digits("train", augment=derive(seed, "augmentation") + rank), Digits("val")


def network(seed: int) -> ResNet:
    """With the weights of the seed."""
    torch.manual_seed(derive(seed, "weights"))
    return ResNet(CONFIG.model)


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Momentum SGD at rate 1, which `rate` is a multiple of."""
    made = optimizer_of(model, CONFIG.hyperparameters)
    for group in made.param_groups:
        group["lr"] = 1.0
    return made


rate = schedule_of(CONFIG)
"""The learning rate of a step, counted from 0."""


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the batch."""
    return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=CONFIG.label_smoothing)
