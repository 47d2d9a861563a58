"""Data of the speech recognition benchmark: preparation, access, sample order, synthetic batches.

The order of an epoch: utterances are sorted by duration, split into `data_train_num_buckets` buckets and
permuted inside each; elements are dropped at random until whole global batches are left; what follows is cut
into global micro-batches, and these are permuted. Order and augmentation are functions of the seed and the
position in the run alone, never of the number of ranks or of loader processes; only where a mask in time
begins also depends on the longest utterance that the rank has in the batch, as in the reference.
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

from train_bench.core import files
from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.rnnt import features, recordings, sources
from train_bench.references.rnnt.config import Config, Data, Hyperparameters
from train_bench.references.rnnt.tokens import text_of, tokenizer
from train_bench.seeds import derive

SCRATCH = "unpacked"
LEAST_SECONDS = 0.1
"""Shorter utterances have too few frames to be normalised."""

LABELS_PER_SECOND = 5
"""Labels in a second of a synthetic utterance; English read aloud has about as many."""


class Batch(NamedTuple):
    """Training utterances.

    features      float32 (T, samples, frame_stack * mel_filters)
    frame_counts  int64 (samples,), at most T
    labels        int64 (samples, U), filled with 0
    label_counts  int64 (samples,), at most U
    """

    features: Tensor
    frame_counts: Tensor
    labels: Tensor
    label_counts: Tensor


class EvaluationBatch(NamedTuple):
    """Utterances as in `Batch`, and their transcripts."""

    features: Tensor
    frame_counts: Tensor
    transcripts: list[str]


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Decode, check and pack every utterance into `folder`; verified and resumable.

    `source` is the data set as distributed (not needed for generated letters). One utterance is in memory at
    a time. Returns at once if `folder` is complete. Never downloads.
    """
    manifest = prepared.manifest_of(
        folder, recordings.FORMAT, lambda: _make(config, _source(config, folder, source), folder)
    )
    notes = recordings.read_notes(folder, manifest)
    _check(config, folder, manifest, notes)
    _check_counts(config, *_opened(config, folder, notes))


def _source(config: Config, folder: Path, source: Path | None) -> sources.Source:
    distributed = {
        "librispeech": lambda config, root: sources.librispeech(config, root, folder / SCRATCH),
        "joined_digits": sources.joined_digits,
    }
    return prepared.chosen_source(config, source, distributed, {"letters": sources.generated})


def _make(config: Config, source: sources.Source, folder: Path) -> dict[str, Any]:
    packs, size = {}, config.data.pack_utterances
    for split, names in (("train", list(source.train)), ("val", list(source.val))):
        groups = [names[first : first + size] for first in range(0, len(names), size)]
        for number, group in enumerate(bar(groups, f"packing {split}")):
            path = recordings.pack_path(folder, split, number)
            if recordings.finished(path, group) is None:
                recordings.write_pack(path, (_heard(config, source, name) for name in group))
        packs[split] = len(groups)
    symbols = _tokenize(config, folder, recordings.read_notes(folder, {"packs": packs}))
    prepared.remove_scratch(folder, SCRATCH)
    return {
        "origin": config.data.origin,
        "sample_rate": config.data.sample_rate,
        "tokenizer": config.data.tokenizer,
        "symbols": symbols,
        "packs": packs,
    }


def _heard(config: Config, source: sources.Source, name: str) -> recordings.Utterance:
    utterance = source.read(name)
    seconds = len(utterance.samples) / config.data.sample_rate
    if seconds < LEAST_SECONDS:
        raise RequestError(f"{name} lasts {seconds:.3f} s; an utterance has at least {LEAST_SECONDS} s.")
    if not utterance.samples.any():
        raise RequestError(f"{name} is silent: all its samples are 0. Fetch it again.")
    return utterance


def _tokenize(config: Config, folder: Path, notes: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Write the symbol numbers of every transcript next to its pack, and return the symbols."""
    data = config.data
    said = (text for note in notes["train"] for _, _, text in note["utterances"])
    made = tokenizer(data.tokenizer, data.alphabet, config.model.labels, said)
    for split in prepared.SPLITS:
        for number, note in enumerate(notes[split]):
            tokens = [made.encode(text) for _, _, text in note["utterances"]]
            for (name, _, text), numbers in zip(note["utterances"], tokens, strict=True):
                if 0 in numbers:
                    raise RequestError(
                        f"The transcript of {name}, '{text}', has a character that no training transcript has."
                    )
            path = recordings.tokens_path(folder, split, number)
            files.write(path, "[" + ",\n".join(str(numbers) for numbers in tokens) + "]\n")
    return made.symbols


def _check(config: Config, folder: Path, manifest: dict[str, Any], notes: dict[str, list[dict]]) -> None:
    data = config.data
    expected = {"origin": data.origin, "sample_rate": data.sample_rate, "tokenizer": data.tokenizer}
    prepared_with = {key: manifest[key] for key in expected} | {"labels": len(manifest["symbols"])}
    expected["labels"] = config.model.labels
    prepared.check_preprocessing(config, folder, prepared_with, expected)
    recordings.verify(folder, notes, contents=data.verify)
    prepared.check_contents(config, folder, recordings.content_digest(notes), data.sha256)


def _opened(
    config: Config, folder: Path, notes: dict[str, list[dict]]
) -> tuple[recordings.Recordings, recordings.Recordings]:
    most = config.hyperparameters.data_train_max_duration * config.data.sample_rate
    train = recordings.Recordings(folder, "train", notes["train"], most_samples=most)
    return train, recordings.Recordings(folder, "val", notes["val"])


def _check_counts(config: Config, train: recordings.Recordings, val: recordings.Recordings) -> None:
    batch = config.hyperparameters.global_batch_size
    if (len(train) // batch * batch, len(val)) != (config.samples_per_epoch, config.eval_samples):
        raise RequestError(
            f"{config.benchmark} has {config.train_samples} training utterances of at most "
            f"{config.hyperparameters.data_train_max_duration:g} s, {config.samples_per_epoch} in whole batches, and "
            f"{config.eval_samples} for evaluation; found {len(train)} and {len(val)}. If the data are as "
            f"distributed, set benchmark.train_samples={len(train)}."
        )


def open_recordings(config: Config) -> tuple[recordings.Recordings, recordings.Recordings, list[str]]:
    """Training and evaluation utterances of `config.data_dir` and the symbols: the first touch of the data
    set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, recordings.FORMAT)
    notes = recordings.read_notes(folder, manifest)
    _check(config, folder, manifest, notes)
    train, val = _opened(config, folder, notes)
    _check_counts(config, train, val)
    if config.data.permute_labels:
        train.tokens = [*train.tokens[1:], train.tokens[0]]
    return train, val, manifest["symbols"]


def epoch_order(
    lengths: np.ndarray, *, buckets: int, batch: int, kept: int, rng: np.random.Generator
) -> np.ndarray:
    """int64 (kept / batch, batch): the global micro-batches of an epoch, as the head of this file says."""
    parts = np.array_split(np.argsort(lengths, kind="stable"), buckets)
    order = np.concatenate([rng.permutation(part) for part in parts])
    order = order[np.sort(rng.permutation(len(order))[:kept])]
    return rng.permutation(order.reshape(-1, batch), axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketed(stream.Order):
    """Utterances bucketed by duration, as the head of this file says.

    lengths       (utterances,) their durations, in any unit
    microbatches  per iteration, which divide the global batch over all ranks
    """

    lengths: np.ndarray
    buckets: int
    seed: int
    global_batch_size: int
    microbatches: int

    @property
    def epoch(self) -> int:
        """Utterances in whole global batches."""
        return len(self.lengths) // self.global_batch_size * self.global_batch_size

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an utterance's index and its position."""

        def order(epoch: int) -> np.ndarray:
            return epoch_order(
                self.lengths,
                buckets=self.buckets,
                batch=self.global_batch_size // self.microbatches,
                kept=self.epoch,
                rng=np.random.default_rng(derive(self.seed, "order", epoch)),
            ).flatten()

        return stream.epoch_by_epoch(parts, self.epoch, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet(Dataset):
    """Augmented utterances by (index, position); the position decides the augmentation."""

    utterances: recordings.Recordings
    data: Data
    hyperparameters: Hyperparameters
    generators: Generators

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, features.Masks, list[int]]:
        index, position = item
        rng = self.generators.at(position)
        speed = rng.uniform(
            self.hyperparameters.data_speed_perturbaton_min, self.hyperparameters.data_speed_perturbaton_max
        )
        seen = features.features(self.utterances.samples(index), self.data, rng, speed=speed)
        masks = features.draw_masks(len(seen), seen.shape[1], self.hyperparameters, rng)
        return seen, masks, self.utterances.tokens[index]

    @property
    def stored(self) -> recordings.Recordings:
        """The stored samples."""
        return self.utterances

    def collate(self, items: list[tuple[Tensor, features.Masks, list[int]]]) -> Batch:
        """Pad, mask, stack."""
        padded = features.pad([seen for seen, _, _ in items])
        features.mask(padded, [masks for _, masks, _ in items])
        labels = [torch.tensor(tokens, dtype=torch.int64) for _, _, tokens in items]
        return Batch(
            features=features.stack_frames(padded, self.data.frame_stack),
            frame_counts=_stacked([seen for seen, _, _ in items], self.data),
            labels=torch.nn.utils.rnn.pad_sequence(labels, batch_first=True),
            label_counts=torch.tensor([len(tokens) for _, _, tokens in items]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet(Dataset):
    """Utterances by index, as they are."""

    utterances: recordings.Recordings
    data: Data
    symbols: list[str]
    seed: int

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        rng = np.random.Generator(np.random.Philox(key=[self.seed, index]))
        seen = features.features(self.utterances.samples(index), self.data, rng)
        return seen, text_of(self.utterances.tokens[index], self.symbols)

    @property
    def stored(self) -> recordings.Recordings:
        """The stored samples."""
        return self.utterances

    def collate(self, items: list[tuple[Tensor, str]]) -> EvaluationBatch:
        """Pad, stack."""
        return EvaluationBatch(
            features=features.stack_frames(features.pad([seen for seen, _ in items]), self.data.frame_stack),
            frame_counts=_stacked([seen for seen, _ in items], self.data),
            transcripts=[transcript for _, transcript in items],
        )


def _stacked(utterances: list[Tensor], data: Data) -> Tensor:
    return torch.tensor([-(-len(seen) // data.frame_stack) for seen in utterances])


def synthetic(config: Config, samples: int, *, share: float = 1.0, seed: int = 0) -> Batch:
    """Synthetic batch of the longest utterances, or of a share of their length, from its own generator: a tone per
    label in noise, which can be learnt. Reads no data."""
    generator = torch.Generator().manual_seed(seed)
    data, seconds = config.data, share * config.hyperparameters.data_train_max_duration
    frames = max(1, round(seconds / data.hop) // data.frame_stack)
    count = max(1, round(seconds * LABELS_PER_SECOND))
    channels = data.frame_stack * data.mel_filters
    labels = torch.randint(1, config.model.labels, (samples, count), generator=generator)
    spoken = labels.repeat_interleave(-(-frames // count), dim=1)[:, :frames] % channels
    tones = 3.0 * torch.nn.functional.one_hot(spoken, channels).float()
    noise = torch.randn(frames, samples, channels, generator=generator)
    sizes = (torch.full((samples,), frames), torch.full((samples,), count))
    return Batch(
        features=noise + tones.transpose(0, 1), frame_counts=sizes[0], labels=labels, label_counts=sizes[1]
    )
