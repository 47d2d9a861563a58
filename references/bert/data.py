"""Data of the language model benchmark: preparation, access, sample order, synthetic batches.

The order: epoch after epoch, a fresh permutation of the training set each, form one endless stream of
examples, and step k trains on positions k GBS to (k + 1) GBS of it. It is a function of the seed and the
position alone, never of the number of ranks, of micro-batches or of loader processes. Masks are part of the
prepared examples, as in the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.bert import packed, sources
from train_bench.references.bert.config import Config
from train_bench.references.parts import prepared, stream
from train_bench.seeds import derive

ROUNDS = 6
"""Rounds of the Feistel network that shuffles; four make a pseudo-random permutation."""


class Batch(NamedTuple):
    """int64 but for the weights.

    tokens, segments   (samples, length)
    lengths            (samples,), tokens without padding
    positions, words   (samples, predictions): where something is masked, and what
    weights            float32 (samples, predictions): 1, or 0 for padding
    random_next        (samples,): 1 where the second segment does not follow the first
    packing            (rows, length): the token, counted over the whole batch, that stands there; -1: none.
                       None: every example has a row of its own
    """

    tokens: Tensor
    segments: Tensor
    lengths: Tensor
    positions: Tensor
    words: Tensor
    weights: Tensor
    random_next: Tensor
    packing: Tensor | None = None


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Pack all examples into `folder`; verified and resumable per file.

    `source` is the data set as distributed (not needed for generated text). A few thousand examples are in
    memory at a time where they come ready-made. Returns at once if `folder` is complete. Never downloads.
    """
    manifest = prepared.manifest_of(
        folder, packed.FORMAT, lambda: _make(config, _source(config, source), folder)
    )
    _check(config, folder, manifest)


def _source(config: Config, source: Path | None) -> sources.Source:
    distributed = {"wikipedia": sources.wikipedia, "text": sources.text}
    return prepared.chosen_source(config, source, distributed, {"grammar": sources.generated})


def _preprocessing(config: Config) -> dict[str, Any]:
    """Settings that determine the packed examples, except their source."""
    data = config.data
    return {
        "origin": data.origin,
        "vocabulary": config.model.vocabulary,
        "sequence_length": data.sequence_length,
        "predictions": data.predictions,
        "masked_share": data.masked_share,
        "copies": data.copies,
    }


def _make(config: Config, source: sources.Source, folder: Path) -> dict:
    preprocessing = _preprocessing(config)
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in prepared.SPLITS}
    work = [(split, number, part) for split in prepared.SPLITS for number, part in enumerate(source[split])]
    for split, number, part in bar(work, "files"):
        name = f"{split}_{number:05d}"
        made_from = {"file": part.name, "bytes": part.size, **preprocessing}
        entry = packed.finished(folder, name, made_from)
        if entry is None:
            entry = packed.write_file(folder, name, part.chunks(), made_from)
        splits[split].append(entry)
    return {"preprocessing": preprocessing, "splits": splits}


def _check(config: Config, folder: Path, manifest: dict) -> None:
    prepared.check_preprocessing(config, folder, manifest["preprocessing"], _preprocessing(config))
    packed.verify(folder, manifest, contents=config.data.verify)
    _check_counts(config, folder, {split: packed.samples_of(manifest, split) for split in prepared.SPLITS})
    prepared.check_contents(config, folder, prepared.content_digest(manifest), config.data.sha256)


def _check_counts(config: Config, folder: Path, counts: dict[str, int]) -> None:
    """Refuse a size of 0; the configuration leaves it open."""
    wanted = {"train": config.train_samples, "val": config.eval_samples}
    for split, count in counts.items():
        if count < 1 or wanted[split] not in (None, count):
            raise RequestError(
                f"{folder} has {count} examples in its split '{split}'; {config.benchmark} has "
                f"{wanted[split] or 'at least 1'}."
            )


def open_examples(config: Config) -> tuple[packed.Examples, packed.Examples]:
    """Training and evaluation examples of `config.data_dir`; first access to the data set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, packed.FORMAT)
    _check(config, folder, manifest)
    rows = packed.row_type(config.data.sequence_length, config.data.predictions)
    train, val = (packed.Examples(folder, split, manifest, rows) for split in prepared.SPLITS)
    return train, val


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle(stream.Order):
    """The examples of the stream by position, in constant memory: every epoch another bijection of the set
    onto itself (Luby and Rackoff 1988, a Feistel network; numbers beyond the set are mapped again)."""

    samples: int
    seed: int

    @property
    def epoch(self) -> int:
        """Every example comes once in an epoch."""
        return self.samples

    def items(self, parts: Iterable[range]) -> Iterator[list[int]]:
        """Indices of examples."""
        return (list(map(self, part)) for part in parts)

    def __call__(self, position: int) -> int:
        """The index of the example at a position of the endless stream."""
        epoch, value = divmod(position, self.samples)
        bits = max(1, (max(1, self.samples - 1).bit_length() + 1) // 2)
        keys = [derive(self.seed, "order", epoch, turn) for turn in range(ROUNDS)]
        value = _permuted(value, bits, keys)
        while value >= self.samples:
            value = _permuted(value, bits, keys)
        return value


def _permuted(value: int, bits: int, keys: list[int]) -> int:
    """A permutation of the numbers of 2 `bits` bits."""
    mask = (1 << bits) - 1
    left, right = value >> bits, value & mask
    for key in keys:
        mixed = (right ^ key) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        left, right = right, left ^ (mixed ^ mixed >> 32) & mask
    return left << bits | right


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSet(Dataset):
    """Batches by lists of indices; an index past the set is padding, an example without words.

    With `permuted`, every example has the masked words of the next one; with `pack`, several share a row.
    """

    examples: packed.Examples
    permuted: bool = False
    pack: bool = False

    def __getitem__(self, indices: list[int]) -> Batch:
        count = len(self.examples)
        rows = np.zeros(len(indices), dtype=self.examples.rows)
        for place, index in enumerate(indices):
            if index < count:
                rows[place] = self.examples[index]
                if self.permuted:
                    other = self.examples[(index + 1) % count]
                    rows[place]["words"] = np.resize(
                        other["words"][: other["masked"]], rows["words"].shape[1]
                    )
        return as_batch(rows, pack=self.pack)

    @property
    def stored(self) -> packed.Examples:
        """The stored samples."""
        return self.examples


def packing_of(lengths: Tensor, row_length: int) -> Tensor:
    """`Batch.packing` by first fit, the longest example first (Johnson 1973: at most 11/9 of the fewest rows, and
    4)."""
    taken: list[int] = []
    placed: list[tuple[int, int, Tensor]] = []
    counts = lengths.clamp(min=1).tolist()
    for example in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
        count = counts[example]
        row = next((row for row, used in enumerate(taken) if used + count <= row_length), len(taken))
        if row == len(taken):
            taken.append(0)
        placed.append((row, taken[row], example * row_length + torch.arange(count)))
        taken[row] += count
    packing = torch.full((len(taken), row_length), -1)
    for row, start, tokens in placed:
        packing[row, start : start + len(tokens)] = tokens
    return packing


def as_batch(rows: np.ndarray, *, pack: bool = False) -> Batch:
    """Rows of `packed.row_type` as tensors."""
    whole = {name: torch.from_numpy(rows[name].astype(np.int64)) for name in rows.dtype.names or ()}
    length, predictions = rows["tokens"].shape[1], rows["words"].shape[1]
    return Batch(
        tokens=whole["tokens"],
        segments=_between(whole["first"], whole["length"], length),
        lengths=whole["length"],
        positions=whole["positions"],
        words=whole["words"],
        weights=(torch.arange(predictions) < whole["masked"].unsqueeze(1)).float(),
        random_next=whole["random_next"],
        packing=packing_of(whole["length"], length) if pack else None,
    )


def _between(starts: Tensor, ends: Tensor, length: int) -> Tensor:
    places = torch.arange(length)
    return ((places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1))).long()


def synthetic(config: Config, samples: int, *, share: float = 1.0, seed: int = 0) -> Batch:
    """Synthetic batch from its own generator: at every masked position stands the word that precedes it, which can be
    learnt. Reads nothing. Examples have their full length or a share of it, without padding."""
    rng = np.random.default_rng(seed)
    length = max(4, round(share * config.data.sequence_length))
    predictions = max(1, round(share * config.data.predictions))
    rows = np.zeros(samples, dtype=packed.row_type(length, predictions))
    rows["tokens"] = rng.integers(config.model.vocabulary, size=(samples, length))
    rows["length"], rows["first"], rows["masked"] = length, length // 2, predictions
    rows["random_next"] = rng.integers(2, size=samples)
    for row in rows:
        row["positions"] = 1 + np.sort(rng.permutation(length - 1)[:predictions])
        row["words"] = row["tokens"][row["positions"] - 1]
    return as_batch(rows, pack=config.data.pack)
