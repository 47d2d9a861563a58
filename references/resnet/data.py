"""Data of the image classification benchmark: preparation and access. Needs no torch, so that a campaign with prepared
data begins at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import images, prepared
from train_bench.references.parts.fingerprint import mapped
from train_bench.references.resnet import shards, sources
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.pixels import decode

PERMUTATION_SEED = 0
"""The labels of `permute_labels` are the same in every run."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Pack the data set into shards under `folder`; verified and resumable.

    `source` is the data set as distributed (not needed for the digits). Returns at once if `folder` is
    complete. Never downloads.
    """
    if config.data.layout == "folder":
        _check_counts(
            config, {split: len(sources.list_classes(folder, split)[0]) for split in prepared.SPLITS}
        )
        return
    manifest = prepared.manifest_of(
        folder, shards.FORMAT, lambda: _pack(config, _source(config, source), folder)
    )
    _check(config, folder, manifest)


def _source(config: Config, source: Path | None) -> sources.Source:
    distributed = {
        "imagenet": lambda _, root: sources.imagenet(root),
        "cifar10": lambda _, root: sources.cifar10(root),
    }
    return prepared.chosen_source(config, source, distributed, {"digits": lambda _: sources.digits()})


def _pack(config: Config, source: sources.Source, folder: Path) -> dict:
    _check_counts(config, source.counts)
    if len(source.classes) > config.model.num_classes:
        raise RequestError(
            f"The source has {len(source.classes)} classes; model.num_classes is {config.model.num_classes}."
        )
    splits: dict[str, list] = {}
    for split in prepared.SPLITS:
        splits[split] = []
        firsts = range(0, source.counts[split], config.data.shard_samples)
        for number, first in enumerate(bar(firsts, f"packing {split}")):
            indices = range(first, min(first + config.data.shard_samples, source.counts[split]))
            path = shards.shard_path(folder, split, number)
            entry = shards.finished(path, len(indices)) or shards.write_shard(
                path, _examples(source, split, indices)
            )
            splits[split].append(entry)
    return {
        "origin": config.data.origin,
        "shape": source.shape and list(source.shape),
        "classes": list(source.classes),
        "splits": splits,
    }


def _examples(source: sources.Source, split: str, indices: range) -> Iterator[shards.Example]:
    for index in indices:
        try:
            example = source.example(split, index)
        except images.FAULTS as error:
            raise RequestError(f"Image {index} of the split '{split}' cannot be read: {error}.") from error
        yield example


def _check(config: Config, folder: Path, manifest: dict) -> None:
    shards.verify(folder, manifest, contents=config.data.verify)
    prepared.check_contents(config, folder, prepared.content_digest(manifest), config.data.sha256)
    _check_counts(config, {split: shards.count(manifest, split) for split in prepared.SPLITS})


def _check_counts(config: Config, counts: dict[str, int]) -> None:
    wanted = {"train": config.train_samples, "val": config.eval_samples}
    if counts != wanted:
        raise RequestError(
            f"{config.benchmark} has {wanted['train']} training and {wanted['val']} evaluation images; "
            f"found {counts['train']} and {counts['val']}."
        )


class FolderImages:
    """Encoded images in class folders, as `sources.list_classes` finds them."""

    def __init__(self, root: Path, split: str) -> None:
        self._paths, self.labels, _ = sources.list_classes(root, split)

    def __len__(self) -> int:
        return len(self._paths)

    def files(self) -> Sequence[Path]:
        """One file per image."""
        return self._paths

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,), encoded."""
        return mapped(self._paths[index])

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return decode(self._paths[index].read_bytes()), sources.NO_BOXES


def open_images(config: Config) -> tuple[shards.Images, shards.Images]:
    """Training and evaluation images of `config.data_dir`: the first touch of the data set."""
    folder = prepared.folder_of(config)
    train: shards.Images
    val: shards.Images
    if config.data.layout == "folder":
        train, val = FolderImages(folder, "train"), FolderImages(folder, "val")
        _check_counts(config, {"train": len(train.labels), "val": len(val.labels)})
    else:
        manifest = prepared.opened_manifest(config, folder, shards.FORMAT)
        _check(config, folder, manifest)
        train, val = (shards.ShardedImages(folder, split, manifest) for split in prepared.SPLITS)
    if config.data.permute_labels:
        train.labels = np.random.default_rng(PERMUTATION_SEED).permutation(train.labels)
    return train, val
