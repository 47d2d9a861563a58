"""Data of the medical image segmentation benchmark: preparation, access, sample order, synthetic batches.

The order: position p of an endless stream is a crop of a case that is drawn with replacement, and step k
trains on positions k GBS to (k + 1) GBS. An epoch is `samples_per_epoch` positions, so no batch is short.
Case, crop and augmentation are functions of the seed and the position alone, never of the number of ranks,
of micro-batches or of loader processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.unet3d import cases, sources
from train_bench.references.unet3d.config import Config, Data
from train_bench.references.unet3d.volumes import (
    KEPT_COMPONENTS,
    augment,
    foreground_boxes,
    normalize,
    pad_to,
    place_around,
    random_place,
    resample,
)

Batch = tuple[Tensor, Tensor]
"""float32 (samples, 1, d, h, w) images and uint8 (samples, 1, d, h, w) labels."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Resample, normalise and pad every case into `folder`; verified and resumable.

    `source` is the data set as distributed (not needed for generated organs). One case is in memory at a
    time. Returns at once if `folder` is complete. Never downloads.
    """
    manifest = prepared.manifest_of(
        folder, cases.FORMAT, lambda: _make(config, _source(config, source), folder)
    )
    _check(config, folder, manifest)


def _source(config: Config, source: Path | None) -> sources.Source:
    distributed = {"kits19": sources.kits19, "decathlon": sources.decathlon}
    return prepared.chosen_source(config, source, distributed, {"organs": sources.generated})


def _preprocessing(config: Config) -> dict[str, Any]:
    """Settings that determine the content of a prepared case, except the case itself."""
    data = config.data
    return {
        "target_spacing": list(data.target_spacing),
        "clip": data.clip and list(data.clip),
        "mean": data.mean,
        "deviation": data.deviation,
        "least_shape": list(config.hyperparameters.training_input_shape),
    }


def _make(config: Config, source: sources.Source, folder: Path) -> dict:
    _check_counts(config, {"train": len(source.train), "val": len(source.val)})
    preprocessing = _preprocessing(config)
    md5 = _known_md5(config)
    entries = {}
    for number in bar([*source.train, *source.val], "cases"):
        entry = cases.finished(folder, number, preprocessing)
        if entry is None:
            image, label = _preprocessed(config, source.case(number))
            entry = cases.write_case(folder, number, image, label, preprocessing=preprocessing, md5=md5)
        entries[number] = entry
    return {
        "origin": config.data.origin,
        "preprocessing": preprocessing,
        "splits": {
            "train": [entries[number] for number in source.train],
            "val": [entries[number] for number in source.val],
        },
    }


def _known_md5(config: Config) -> dict[str, str]:
    """The digests that prepared files must have, by name."""
    if config.data.md5 is None:
        return {}
    path = Path(__file__).parent / config.data.md5
    try:
        return prepared.md5_by_name(path.read_text().splitlines())
    except OSError as error:
        raise RequestError(
            f"The list of digests {path} (data.md5) cannot be read: {error.strerror}."
        ) from error


def _preprocessed(config: Config, case: sources.Case) -> tuple[np.ndarray, np.ndarray]:
    """Resampled, normalised and padded, in the order of the reference."""
    scale = zip(case.image.shape, case.spacing, config.data.target_spacing, strict=True)
    if not all(int(side * have / want) >= 1 for side, have, want in scale):
        raise RequestError(
            f"{case.where}: {case.image.shape} voxels of {case.spacing} mm have no voxel left at "
            f"{config.data.target_spacing} mm; the header's voxel size is wrong."
        )
    image, label = resample(case.image, case.label, case.spacing, config.data.target_spacing)
    image = normalize(image, config.data)
    if not np.isfinite(image).all():
        raise RequestError(f"{case.where}: every voxel has the same intensity; a scan has more than one.")
    least = config.hyperparameters.training_input_shape
    return pad_to(image, least), pad_to(label, least)


def _check(config: Config, folder: Path, manifest: dict) -> None:
    prepared.check_preprocessing(config, folder, manifest["preprocessing"], _preprocessing(config))
    cases.verify(folder, manifest, contents=config.data.verify)
    cases.check_md5(folder, manifest, _known_md5(config))
    _check_counts(config, {split: len(manifest["splits"][split]) for split in prepared.SPLITS})
    prepared.check_contents(config, folder, cases.content_digest(manifest), config.data.sha256)


def _check_counts(config: Config, counts: dict[str, int]) -> None:
    wanted = {"train": config.train_samples, "val": config.eval_samples}
    if counts != wanted:
        raise RequestError(
            f"{config.benchmark} has {wanted['train']} training and {wanted['val']} evaluation cases; "
            f"found {counts['train']} and {counts['val']}."
        )


def open_volumes(config: Config) -> tuple[cases.Cases, cases.Cases]:
    """Training and evaluation cases of `config.data_dir`: the first touch of the data set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, cases.FORMAT)
    _check(config, folder, manifest)
    train, val = (cases.Cases(folder, split, manifest) for split in prepared.SPLITS)
    if config.data.permute_labels:
        train.permuted = [*range(1, len(train)), 0]
    return train, val


class Positions(stream.Order):
    """The positions themselves, by which `TrainingSet` draws cases."""

    def items(self, parts: Iterable[range]) -> Iterator[list[int]]:
        """Positions."""
        return map(list, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(Dataset):
    """Augmented crops by position. The boxes of a case's foreground are found when it is first oversampled,
    and kept for all loader processes of the rank."""

    volumes: cases.Cases
    data: Data
    shape: list[int]
    oversampling: float
    classes: int
    generators: Generators
    known: Tensor = field(init=False)
    boxes: Tensor = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.volumes)
        kept = torch.full((count, self.classes - 1, KEPT_COMPONENTS, 6), -1, dtype=torch.int32)
        object.__setattr__(self, "known", torch.zeros(count, dtype=torch.uint8).share_memory_())
        object.__setattr__(self, "boxes", kept.share_memory_())

    def __getitem__(self, position: int) -> Batch:
        rng = self.generators.at(position)
        index = int(rng.integers(len(self.volumes)))
        image, label = self.volumes.image(index), self.volumes.label(index)
        size = image.shape[1:]
        boxes = self._boxes(index, label) if rng.random() < self.oversampling else None
        if boxes is not None and (boxes >= 0).any():
            place = place_around(boxes, size, self.shape, rng)
        else:
            place = random_place(size, self.shape, rng)
        cut = (
            slice(None),
            *(slice(first, first + side) for first, side in zip(place, self.shape, strict=True)),
        )
        return augment(image[cut], label[cut], self.data, rng)

    def _boxes(self, index: int, label: np.ndarray) -> np.ndarray:
        if not self.known[index]:
            self.boxes[index] = torch.from_numpy(foreground_boxes(np.asarray(label[0]), self.classes))
            self.known[index] = 1
        return self.boxes[index].numpy()

    @property
    def stored(self) -> cases.Cases:
        """The stored samples."""
        return self.volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(Dataset):
    """Whole volumes by index, with the index."""

    volumes: cases.Cases

    def __getitem__(self, index: int) -> tuple[int, Tensor, Tensor]:
        image, label = self.volumes.image(index), self.volumes.label(index)
        return index, torch.from_numpy(np.array(image)), torch.from_numpy(np.array(label))

    @property
    def stored(self) -> cases.Cases:
        """The stored samples."""
        return self.volumes


def evaluation_order(shapes: list[tuple[int, ...]], rank: int, ranks: int) -> list[list[int]]:
    """Every case once over all ranks, each by itself, the largest first, so that ranks have about as much to do."""
    by_size = sorted(range(len(shapes)), key=lambda index: -int(np.prod(shapes[index])))
    return [[index] for index in by_size[rank::ranks]]


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch from its own generator: a bright ball of every foreground class in noise, which can be learnt.
    Reads no data."""
    generator = torch.Generator().manual_seed(seed)
    shape = config.hyperparameters.training_input_shape
    axes = [torch.linspace(-1.0, 1.0, side) for side in shape]
    distance = (
        axes[0].view(-1, 1, 1) ** 2 + axes[1].view(1, -1, 1) ** 2 + axes[2].view(1, 1, -1) ** 2
    ).sqrt()
    rings = torch.zeros(shape, dtype=torch.uint8)
    for number in range(1, config.model.num_classes):
        rings[distance < 1.0 - number / (config.model.num_classes + 1)] = number
    labels = rings.expand(samples, 1, *shape).contiguous()
    noise = torch.randn(samples, 1, *shape, generator=generator)
    return noise + labels, labels
