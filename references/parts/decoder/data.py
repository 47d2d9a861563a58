"""Data for decoder pretraining: preparation, access, synthetic batches.

Documents form one stream without a token between them. It is cut into sequences wherever these end; positions and
attention go on from document to document, and every token is predicted. The first `eval_samples` sequences of the
evaluation's stream are the evaluation set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import prepared, stream
from train_bench.references.parts.decoder import sources, tokens
from train_bench.references.parts.decoder.config import Config
from train_bench.references.parts.decoder.loss import NO_TARGET
from train_bench.seeds import derive

NO_TOKEN = NO_TARGET
"""Token of sequences that fill a batch of an evaluation."""


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Tokenize all documents into `folder`; verified and resumable per file.

    `source` is the data set as distributed (not needed for generated text). A few hundred documents are in memory at a
    time. Returns at once if `folder` is complete. Never downloads.
    """
    manifest = prepared.manifest_of(
        folder, tokens.FORMAT, lambda: _make(config, _source(config, source), folder)
    )
    _check(config, folder, manifest)


def _source(config: Config, source: Path | None) -> sources.Source:
    distributed = {"c4": sources.c4, "text": sources.text}
    return prepared.chosen_source(config, source, distributed, {"grammar": sources.generated})


def _preprocessing(config: Config) -> dict[str, Any]:
    """Settings that determine the prepared tokens, except their source."""
    return {"origin": config.data.origin, "vocabulary": config.model.vocabulary}


def _make(config: Config, source: sources.Source, folder: Path) -> dict[str, Any]:
    """The evaluation files, as many as its sequences need."""
    preprocessing, kind = _preprocessing(config), tokens.token_type(config.model.vocabulary)
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in prepared.SPLITS}
    work = [(split, number, part) for split in prepared.SPLITS for number, part in enumerate(source[split])]
    for split, number, part in bar(work, "files"):
        if split == "val" and _sequences(config, splits["val"]) >= (config.eval_samples or 0):
            continue
        name, made_from = f"{split}_{number:05d}", {**part.made_from, **preprocessing}
        entry = tokens.finished(folder, name, made_from)
        if entry is None:
            entry = tokens.write_file(folder, name, part.documents(), kind, made_from)
        splits[split].append(entry)
    return {"preprocessing": preprocessing, "splits": splits}


def _sequences(config: Config, entries: Sequence[dict[str, Any]]) -> int:
    return tokens.sequences_of(entries, config.hyperparameters.max_sequence_length)


def _check(config: Config, folder: Path, manifest: dict[str, Any]) -> None:
    prepared.check_preprocessing(config, folder, _recorded(config, folder, manifest), _preprocessing(config))
    tokens.verify(folder, manifest, contents=config.data.verify)
    found = {split: _sequences(config, manifest["splits"][split]) for split in prepared.SPLITS}
    train, val, length = config.train_samples, config.eval_samples, config.hyperparameters.max_sequence_length
    if found["train"] < 1 or train not in (None, found["train"]) or found["val"] < (val or 1):
        raise RequestError(
            f"{folder} has {found['train']} sequences of {length} tokens for training and "
            f"{found['val']} for evaluation; {config.benchmark} has {train or 'at least 1'} and at least {val}."
        )
    _check_size(config, folder, manifest)
    prepared.check_contents(config, folder, prepared.content_digest(manifest), config.data.sha256)


def _recorded(config: Config, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The settings that `folder` was prepared with. Before version 0.3 a token followed each document; generated text
    has that token itself."""
    held = dict(manifest["preprocessing"])
    added = held.pop("end_of_document", None)
    if added is not None and config.data.origin != "grammar":
        raise RequestError(
            f"The data in {folder} were prepared with the token {added} after each document, as train_bench did before "
            f"version 0.3; {config.benchmark} has no token between documents. Remove the folder and prepare again."
        )
    return held


def _check_size(config: Config, folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse other numbers of documents and tokens than the published files have. Of JSON lines for evaluation only the
    first files are prepared."""
    given, splits = config.data, manifest["splits"]
    due = {
        "train": (given.train_documents, given.train_size),
        "val": (given.eval_documents, given.eval_size),
    }
    for split, (documents, size) in due.items():
        whole = split == "train" or all("last" in entry["made_from"] for entry in splits[split])
        held = [sum(entry[name] for entry in splits[split]) for name in ("documents", "tokens")]
        if size is not None and whole and held != [documents, size]:
            raise RequestError(
                f"{folder} has {held[0]} documents and {held[1]} tokens in split '{split}'; the files of "
                f"{config.benchmark} have {documents} and {size}. Fetch them whole, and prepare again."
            )


def open_sequences(config: Config) -> tuple[tokens.Sequences, tokens.Sequences]:
    """Training and evaluation sequences of `config.data_dir`: the first touch of the data set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, tokens.FORMAT)
    _check(config, folder, manifest)
    length, kind = config.hyperparameters.max_sequence_length, tokens.token_type(config.model.vocabulary)
    entries = manifest["splits"]
    counts = {"train": _sequences(config, entries["train"]), "val": config.eval_samples or 0}
    train, val = (
        tokens.Sequences(folder, entries[split], kind, length=length, count=counts[split])
        for split in prepared.SPLITS
    )
    return train, val


def training_order(config: Config, samples: int, seed: int) -> stream.Order:
    """The order of the training sequences: shuffled; of several parts, one of each in turn."""
    if config.data.train_parts == 1:
        return stream.Shuffled(samples=samples, seed=seed)
    return stream.Alternating(parts=tuple(_sequences_of_parts(config)), seed=seed)


def _sequences_of_parts(config: Config) -> list[int]:
    """Sequences of each part of the training files. One that ends in the next part belongs to that."""
    folder, parts = prepared.folder_of(config), config.data.train_parts
    entries = prepared.opened_manifest(config, folder, tokens.FORMAT)["splits"]["train"]
    names = list(dict.fromkeys(entry["made_from"].get("file") for entry in entries))
    if parts < 1 or len(names) % parts:
        raise RequestError(
            f"data.train_parts is {parts}; allowed are divisors of the number of training files, {len(names)} in "
            f"{folder}."
        )
    ends = [0] * parts
    for entry in entries:
        ends[names.index(entry["made_from"].get("file")) * parts // len(names)] += entry["tokens"]
    length = config.hyperparameters.max_sequence_length
    bounds = [end // length for end in np.cumsum(ends)[:-1]] + [_sequences(config, entries)]
    return np.diff(bounds, prepend=0).tolist()


@dataclass(frozen=True, slots=True)
class BatchSet(Dataset):
    """Batches, int64 (samples, length + 1), by lists of indices, or of pairs of index and position; an index past the
    set is padding. With `permuted`, the tokens of every sequence are shuffled."""

    sequences: tokens.Sequences
    permuted: bool = False

    def __getitem__(self, items: Sequence[int | tuple[int, int]]) -> Tensor:
        return torch.from_numpy(
            np.stack([self._row(item if isinstance(item, int) else item[0]) for item in items])
        )

    def _row(self, index: int) -> np.ndarray:
        if index >= len(self.sequences):
            return np.full(self.sequences.length + 1, NO_TOKEN, dtype=np.int64)
        row = self.sequences[index].astype(np.int64)
        return np.random.default_rng(derive(0, "permuted", index)).permutation(row) if self.permuted else row

    @property
    def stored(self) -> tokens.Sequences:
        """The stored samples."""
        return self.sequences


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Tensor:
    """Synthetic batch from its own generator: ascending numbers, which can be learnt. Reads no data."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(config.model.vocabulary, size=(samples, 1))
    counted = starts + np.arange(config.hyperparameters.max_sequence_length + 1)
    return torch.from_numpy(counted % config.model.vocabulary)
