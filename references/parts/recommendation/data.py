"""Click logs: preparation, access, sample order.

The order: training records were shuffled once, when they were prepared. Each epoch cuts them into blocks of one
global batch and permutes these; the last block, which may be short, comes last. Epoch after epoch forms one
endless stream of records, and step k trains on positions k GBS to (k + 1) GBS of it, so a batch may span two
epochs, and every record comes exactly once per epoch. The order is a function of the seed and the position alone,
never of the number of ranks, of micro-batches or of loader processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts import prepared, stream
from train_bench.references.parts.fingerprint import Stored
from train_bench.references.parts.recommendation import records
from train_bench.references.parts.recommendation.clicks import clicks
from train_bench.references.parts.recommendation.config import Model
from train_bench.seeds import derive

Batch = tuple[Tensor, Tensor, Tensor]
"""float32 (b,) labels, float32 (b, features) dense features, int64 (b, rows) rows that are looked up."""

C = TypeVar("C", bound=Any)
"""The configuration of a benchmark that predicts clicks."""


def prepare(
    config: C, folder: Path, source: Path | None, pack: Callable[[C, Path, Path], dict[str, Any]]
) -> None:
    """Generate click logs in `folder`, or have Criteo's of folder `source` packed by `pack`, which returns a manifest
    entry per split; verified. Returns at once if `folder` is complete. Never downloads."""

    def make() -> dict[str, Any]:
        origin, known = config.data.origin, ("criteo", "clicks")
        if origin not in known:
            raise UnknownName(what="data origin", name=origin, known=known)
        return {
            "origin": origin,
            **_made_for(config),
            "splits": _generate(config, folder)
            if origin == "clicks"
            else pack(config, folder, prepared.given_source(config, origin, source)),
        }

    _check(config, folder, prepared.manifest_of(folder, records.FORMAT, make))


def _made_for(config: Any) -> dict[str, Any]:
    return {
        "dense_features": config.model.dense_features,
        "table_rows": list(config.model.table_rows),
    }


def _generate(config: Any, folder: Path) -> dict[str, Any]:
    """Write the generated clicks; their order is random already."""
    model = config.model
    sizes = {"train": config.train_samples or 0, "val": config.eval_samples or 0}
    return {
        split: records.write_split(
            folder,
            split,
            bar(clicks(samples, number, model.dense_features, model.table_rows), f"clicks, {split}"),
            model,
        )
        for number, (split, samples) in enumerate(sizes.items())
    }


def _check(config: Any, folder: Path, manifest: dict) -> None:
    expected = _made_for(config)
    prepared_with = {key: manifest[key] for key in expected}
    prepared.check_preprocessing(config, folder, prepared_with, expected)
    records.verify(folder, manifest, contents=config.data.verify)
    refuse_counts(config, folder, *(manifest["splits"][split]["samples"] for split in prepared.SPLITS))
    prepared.check_contents(config, folder, records.content_digest(manifest), config.data.sha256)


def refuse_counts(config: Any, folder: Path, train: int, val: int) -> None:
    """Refuse other numbers of samples than those of the benchmark."""
    if (train, val) != (config.train_samples, config.eval_samples):
        raise RequestError(
            f"{config.benchmark} has {config.train_samples} training and {config.eval_samples} evaluation samples; "
            f"found {train} and {val} in {folder}. Prepare those of this benchmark in another folder."
        )


def open_records(config: Any) -> tuple[records.Records, records.Records]:
    """Training and evaluation records of `config.data_dir`: the first touch of the data set."""
    folder = prepared.folder_of(config)
    manifest = prepared.opened_manifest(config, folder, records.FORMAT)
    _check(config, folder, manifest)
    train, val = (records.Records(folder, split, manifest, config.model) for split in prepared.SPLITS)
    train.permuted = config.data.permute_labels
    return train, val


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledBlocks(stream.Order):
    """Blocks of one global batch of records, permuted in every epoch."""

    samples: int
    seed: int
    global_batch_size: int

    @property
    def epoch(self) -> int:
        """Every record comes once in an epoch."""
        return self.samples

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Stretches (first record, count)."""
        epoch, blocks = -1, np.zeros(0, dtype=np.int64)
        for part in parts:
            stretches, position = [], part.start
            while position < part.stop:
                if position // self.samples != epoch:
                    epoch = position // self.samples
                    blocks = self._blocks(epoch)
                block, inside = divmod(position % self.samples, self.global_batch_size)
                first = int(blocks[block]) * self.global_batch_size
                length = min(self.global_batch_size, self.samples - first) - inside
                count = min(length, part.stop - position)
                stretches.append((first + inside, count))
                position += count
            yield stretches

    def _blocks(self, epoch: int) -> np.ndarray:
        """The order of an epoch's blocks, a short one last."""
        whole, rest = divmod(self.samples, self.global_batch_size)
        blocks = np.random.default_rng(derive(self.seed, "order", epoch)).permutation(whole)
        return np.append(blocks, whole) if rest else blocks


def evaluation_order(samples: int, batch_size: int, rank: int, ranks: int) -> list[list[tuple[int, int]]]:
    """Every record once over all ranks, one after the other, in as many batches on each rank: all take part in
    each exchange of embeddings. Batches at the end may be short or empty."""
    share = -(-samples // ranks)
    first, end = min(rank * share, samples), min((rank + 1) * share, samples)
    starts = (first + number * batch_size for number in range(-(-share // batch_size)))
    return [[(start, max(0, min(batch_size, end - start)))] for start in starts]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet(Dataset):
    """Batches by their stretches of records; `as_batch` makes one of int32 records (n, columns)."""

    records: records.Records
    as_batch: Callable[[np.ndarray], Batch]

    def __getitem__(self, stretches: list[tuple[int, int]]) -> Batch:
        blocks = [self.records.read(*part) for part in stretches]
        return self.as_batch(blocks[0] if len(blocks) == 1 else np.concatenate(blocks))

    @property
    def stored(self) -> Stored:
        """The stored samples."""
        return self.records


def numbers_of(stretches: list[tuple[int, int]]) -> np.ndarray:
    """int64: the numbers of all records of some stretches."""
    return np.concatenate([np.arange(first, first + count) for first, count in stretches])


def counts_of(block: np.ndarray, model: Model) -> np.ndarray:
    """int32 (n, features) of records (n, columns)."""
    return block[:, 1 : 1 + model.dense_features]


def rows_of(block: np.ndarray, model: Model) -> np.ndarray:
    """int64 (n, tables) of records (n, columns)."""
    rows: np.ndarray = block[:, 1 + model.dense_features :].astype(np.int64)
    return rows if model.max_table_rows is None else rows % model.max_table_rows


def labels_of(block: np.ndarray) -> Tensor:
    """float32 (n,) of records (n, columns)."""
    return torch.from_numpy(block[:, 0].astype(np.float32))


def synthetic(model: Model, samples: int, *, seed: int = 0) -> np.ndarray:
    """int32 records (samples, columns) from a generator of its own: labels that follow the first dense feature, which
    can be learnt."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 100, (samples, model.dense_features))
    rows = [rng.integers(0, rows, samples) for rows in model.table_rows]
    labels = (dense[:, 0] > 50).astype(np.int64)
    return np.column_stack([labels, dense, *rows]).astype(np.int32)
