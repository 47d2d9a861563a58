"""Data for text to image: preparation, access, what is drawn anew with each use of a sample, synthetic batches.

A folder of prepared data is

    manifest.json       format, settings, and per split the list of its files
    empty.bin           the encodings of the empty prompt
    train_00000.bin     of generated data, samples one after the other; of encoded data sets, which stay in place, the
                        places of the parts of their samples
    train_00000.json    what it was made from, samples, bytes and sha256, written last

A training sample's latent, noise and time, and whether its prompt is dropped, follow from the seed of the run and the
sample's position in it; those of an evaluation sample from its number alone, in every evaluation of every run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.flux1 import sources
from train_bench.references.flux1.config import Config
from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped
from train_bench.seeds import derive

FORMAT = 1
EMPTY = "empty.bin"
PLACES = np.dtype("<i8")

Batch = tuple[Tensor, ...]
"""bfloat16 (b, tokens, text width) and (b, pooled width), the prompts; float32 (b, channels, rows, columns) twice,
latents as they are trained on and noise; float32 (b,), times."""

Parts = tuple[np.ndarray, ...]
"""The same as arrays, bits of bfloat16 as uint16."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Generate samples, or index the encoded data sets below `source`, into `folder`; verified, resumable per file.
    Returns at once if `folder` is complete. Never downloads, and never copies an encoded data set."""
    config.model.check()
    manifest = prepared.manifest_of(folder, FORMAT, lambda: _make(config, _source(config, source), folder))
    _check(config, folder, manifest)


def _source(config: Config, source: Path | None) -> sources.Source:
    distributed = {"preprocessed": sources.preprocessed}
    return prepared.chosen_source(config, source, distributed, {"mixture": sources.generated})


def _preprocessing(config: Config) -> dict[str, Any]:
    """Settings that determine the prepared data, except their source."""
    given = config.data
    shapes = {part: list(shape) for part, shape in sources.shapes(config).items()}
    generated = {"shift": given.shift, "scale": given.scale, "timesteps": given.timesteps}
    return {"origin": given.origin, "shapes": shapes, **(generated if given.origin == "mixture" else {})}


def _make(config: Config, source: sources.Source, folder: Path) -> dict[str, Any]:
    preprocessing = _preprocessing(config)
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in prepared.SPLITS}
    work = [
        (split, number, piece)
        for split in prepared.SPLITS
        for number, piece in enumerate(source.pieces[split])
    ]
    for split, number, piece in bar(work, "files"):
        path = folder / f"{split}_{number:05d}.bin"
        made_from = {**piece.made_from, **preprocessing}
        entry = prepared.finished(path, made_from) or _written(config, path, piece, made_from)
        splits[split].append(entry | ({"in_place": str(piece.in_place)} if piece.in_place else {}))
    empty = prepared.write_file(
        folder / EMPTY, (source.empty[part].tobytes() for part in ("text", "pooled")), preprocessing, {}
    )
    return {"preprocessing": preprocessing, "empty": empty, "splits": splits}


def _written(
    config: Config, path: Path, piece: sources.Piece, made_from: Mapping[str, Any]
) -> dict[str, Any]:
    size = (
        PLACES.itemsize * len(sources.COLUMNS) + PLACES.itemsize if piece.in_place else _sample_bytes(config)
    )
    counts = {"samples": 0}

    def contents() -> Iterator[bytes]:
        for content in piece.contents():
            counts["samples"] += len(content) // size
            yield content

    return prepared.write_file(path, contents(), made_from, counts)


def _sizes(config: Config) -> list[int]:
    """Bytes of the parts of a sample."""
    return [2 * int(np.prod(shape)) for shape in sources.shapes(config).values()]


def _sample_bytes(config: Config) -> int:
    return sum(_sizes(config)) + 4


def _check(config: Config, folder: Path, manifest: dict[str, Any]) -> None:
    prepared.check_preprocessing(config, folder, manifest["preprocessing"], _preprocessing(config))
    entries = [entry for split in prepared.SPLITS for entry in manifest["splits"][split]]
    for entry in [*entries, manifest["empty"]]:
        prepared.check_file(folder / f"{entry['name']}.bin", entry, contents=config.data.verify)
    for entry in entries:
        if "in_place" in entry:
            held = prepared.size(Path(entry["in_place"]))
            if held != entry["made_from"]["bytes"]:
                raise RequestError(
                    f"{entry['in_place']} has {held} of {entry['made_from']['bytes']} bytes; the data set has to stay "
                    f"where it was prepared from. Put it back, or remove {folder} and prepare again."
                )
    due = {"train": config.train_samples, "val": config.eval_samples}
    found = {split: sum(one["samples"] for one in manifest["splits"][split]) for split in prepared.SPLITS}
    if any(due[split] not in (None, found[split]) for split in prepared.SPLITS):
        raise RequestError(
            f"{config.benchmark} has {due['train']} training and {due['val']} evaluation samples; found "
            f"{found['train']} and {found['val']} in {folder}. Fetch the data sets whole, remove the folder and "
            "prepare again."
        )
    prepared.check_contents(config, folder, prepared.content_digest(manifest), config.data.sha256)


class Samples:
    """The stored samples of a split. Maps each file when it is first needed, in whichever process needs it."""

    def __init__(self, config: Config, folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
        self._shapes = list(sources.shapes(config).values())
        self._sizes = _sizes(config)
        self._entries = list(entries)
        self._folder = folder
        self._ends = list(accumulate(entry["samples"] for entry in entries))
        self._maps: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def files(self) -> Sequence[Path]:
        """The files that hold the samples."""
        return [Path(entry.get("in_place") or self._own(entry)) for entry in self._entries]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,): the mean of the image, which no other one has."""
        return self.parts(index)[2]

    def parts(self, index: int) -> list[np.ndarray]:
        """uint8 (bytes,) of a sample's text, pooled, mean and logvar, as they lie in the file; nothing is read yet."""
        data, places = self._located(index)
        return [data[place : place + size] for place, size in zip(places, self._sizes, strict=False)]

    def part(self, index: int, number: int) -> np.ndarray:
        """uint16, bits of bfloat16: of a sample the part text, pooled, mean or logvar."""
        return self.parts(index)[number].view("<u2").reshape(self._shapes[number])

    def timestep(self, index: int) -> int:
        """Timestep of an evaluation sample."""
        data, places = self._located(index)
        return int(data[places[4] : places[4] + 4].view("<i4")[0])

    def _own(self, entry: Mapping[str, Any]) -> Path:
        return self._folder / f"{entry['name']}.bin"

    def _located(self, index: int) -> tuple[np.ndarray, list[int]]:
        """The file of a sample, and the places of its parts and its timestep in it."""
        number = bisect_right(self._ends, index)
        if number not in self._maps:
            self._maps[number] = self._opened(self._entries[number])
        data, places = self._maps[number]
        first = self._ends[number - 1] if number else 0
        return data, places[index - first].tolist()

    def _opened(self, entry: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        own = self._own(entry)
        if "in_place" in entry:
            places = mapped(own, PLACES).reshape(entry["samples"], -1)
            return mapped(Path(entry["in_place"])), places
        within = np.cumsum([0, *self._sizes])
        return mapped(own), np.arange(entry["samples"])[:, None] * (int(within[-1]) + 4) + within


def open_samples(config: Config) -> tuple[Samples, Samples, tuple[np.ndarray, np.ndarray]]:
    """Training and evaluation samples of `config.data_dir`, and the empty prompt's encodings, uint16: the first touch
    of the data set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, FORMAT)
    _check(config, folder, manifest)
    train, val = (Samples(config, folder, manifest["splits"][split]) for split in prepared.SPLITS)
    shapes = sources.shapes(config)
    empty = np.fromfile(folder / EMPTY, dtype="<u2")
    cut = int(np.prod(shapes["text"]))
    return train, val, (empty[:cut].reshape(shapes["text"]), empty[cut:])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSet(Dataset):
    """Batches of `stored` samples: by lists of an index and a position each, to train on; by lists of indices, to
    evaluate on, where an index past the set is padding, of time -1.

    empty     encodings of the empty prompt, for samples whose prompt is dropped
    seed      of what is drawn for training samples
    permuted  training samples have the prompts of other samples
    """

    config: Config
    stored: Samples
    empty: tuple[np.ndarray, np.ndarray]
    seed: int = 0
    permuted: bool = False

    def __getitem__(self, items: Sequence[int | tuple[int, int]]) -> Batch:
        made = self._evaluated(items) if isinstance(items[0], int) else self._trained(items)
        text, pooled, *numbers = (torch.from_numpy(part) for part in made)
        return text.view(torch.bfloat16), pooled.view(torch.bfloat16), *numbers

    def _trained(self, items: Sequence[Any]) -> Parts:
        chances, normals = np.empty((len(items), 2)), self._normals(len(items))
        for row, (_, position) in enumerate(items):
            rng = np.random.default_rng(derive(self.seed, "sample", position))
            rng.random(out=chances[row])
            rng.standard_normal(out=normals[row], dtype=np.float32)
        images = [self.stored.parts(index) for index, _ in items]
        prompts = (
            [self.stored.parts(self._other(index)) for index, _ in items] if self.permuted else list(images)
        )
        empty = [part.reshape(-1).view(np.uint8) for part in self.empty]
        for row in np.flatnonzero(chances[:, 0] < self.config.data.drop_prompts).tolist():
            prompts[row] = empty
        return self._joined(prompts, images, normals, chances[:, 1])

    def _evaluated(self, items: Sequence[Any]) -> Parts:
        normals = self._normals(len(items))
        for row, index in enumerate(items):
            rng = np.random.default_rng(derive(0, "evaluation", index))
            rng.standard_normal(out=normals[row], dtype=np.float32)
        padding = np.array(items) >= len(self.stored)
        held = np.where(padding, 0, items).tolist()
        images = [self.stored.parts(index) for index in held]
        times = np.array([self.stored.timestep(index) for index in held]) / self.config.data.timesteps
        return self._joined(images, images, normals, np.where(padding, -1.0, times))

    def _normals(self, samples: int) -> np.ndarray:
        """float32 (samples, 2, channels, rows, columns), not filled: of each sample for its latent, then its noise."""
        return np.empty((samples, 2, *sources.shapes(self.config)["mean"]), dtype=np.float32)

    def _joined(
        self,
        prompts: Sequence[Sequence[np.ndarray]],
        images: Sequence[Sequence[np.ndarray]],
        normals: np.ndarray,
        times: np.ndarray,
    ) -> Parts:
        """A batch of the parts of samples, as the file has them, the prompts' and the images'."""
        text, pooled, mean, logvar = (
            np.concatenate([sample[number] for sample in samples]).view("<u2").reshape(len(samples), *shape)
            for number, (samples, shape) in enumerate(
                zip((prompts, prompts, images, images), sources.shapes(self.config).values(), strict=True)
            )
        )
        return text, pooled, *self._drawn(mean, logvar, normals), times.astype(np.float32)

    def _drawn(self, mean: np.ndarray, logvar: np.ndarray, normals: np.ndarray) -> Parts:
        """float32 (samples, channels, rows, columns) twice: latents of what the encoder left open, and noise."""
        latents = _numbers(mean) + np.exp(0.5 * _numbers(logvar)) * normals[:, 0]
        given = self.config.data
        scaled = np.float32(given.scale) * (latents - np.float32(given.shift))
        return scaled, np.ascontiguousarray(normals[:, 1])

    def _other(self, index: int) -> int:
        """The sample whose prompt one has with `permuted`."""
        rng = np.random.default_rng(derive(0, "permuted", index))
        return int(rng.integers(len(self.stored)))


def _numbers(bits: np.ndarray) -> np.ndarray:
    """float32 of the bits of bfloat16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch from its own generator, all normal, with times in order. Reads no data."""
    rng = np.random.default_rng(seed)
    shapes = sources.shapes(config)
    text, pooled, latents, noise = (
        torch.from_numpy(rng.standard_normal((samples, *shapes[part]), dtype=np.float32))
        for part in ("text", "pooled", "mean", "mean")
    )
    return text.bfloat16(), pooled.bfloat16(), latents, noise, torch.arange(samples) / samples
