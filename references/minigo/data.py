"""Window of recent self-play games, the only training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from train_bench.errors import RequestError
from train_bench.references.minigo import game
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.selfplay import Record
from train_bench.references.parts import prepared
from train_bench.seeds import derive
from train_bench.task import DataFacts

Batch = tuple[Tensor, Tensor, Tensor]
"""Planes uint8 (k, 13, side, side), search probabilities float32 (k, n + 1), results float32 (k,)."""


UNTRAINED = "untrained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Positions to learn from: planes uint8 (k, bytes) with eight points a byte, policies float16 (k, n + 1),
    winners int8 (k,)."""

    planes: np.ndarray
    policies: np.ndarray
    winners: np.ndarray

    def __len__(self) -> int:
        return len(self.winners)


def examples_of(records: Sequence[Record]) -> Examples:
    """The positions of a generation's games, in the order of the games' numbers."""
    ordered = sorted(records, key=lambda record: record.number)
    return Examples(
        planes=np.concatenate([record.planes for record in ordered]),
        policies=np.concatenate([record.policies for record in ordered]),
        winners=np.concatenate([np.full(len(record.planes), record.winner, np.int8) for record in ordered]),
    )


def joined(window: Sequence[Examples]) -> Examples:
    """All positions of the window, the oldest first."""
    return Examples(
        planes=np.concatenate([part.planes for part in window]),
        policies=np.concatenate([part.policies for part in window]),
        winners=np.concatenate([part.winners for part in window]),
    )


def facts(config: Config) -> DataFacts:
    """Training makes its own data."""
    return DataFacts(train_samples=config.train_samples, eval_samples=config.eval_samples)


def steps_of(config: Config, positions: int) -> int:
    """Steps of a generation: one pass over its share of the window, the rest that fills no batch left out, but at
    least one step."""
    return max(1, int(positions * config.data.train_filter) // config.hyperparameters.global_batch_size)


def batches(
    config: Config, window: Sequence[Examples], *, seed: int, generation: int, rank: int, ranks: int
) -> Iterator[tuple[np.ndarray, Batch]]:
    """This rank's micro-batches of a generation, each with the numbers of its positions in the window, which count on
    where a position is drawn again because there are too few. Which positions are drawn, their order and their
    symmetries follow the seed and the generation, not the number of ranks."""
    hyperparameters, size = config.hyperparameters, config.model.board_size
    every = joined(window)
    rng = np.random.default_rng(derive(seed, "window", generation))
    wanted = steps_of(config, len(every)) * hyperparameters.global_batch_size
    drawn = np.resize(rng.permutation(len(every)), wanted)
    numbers = drawn + np.arange(wanted) // len(every) * len(every)
    turns = rng.integers(8, size=wanted)
    targets = rng.permutation(drawn) if config.data.permute_labels else drawn
    share = hyperparameters.global_batch_size // (ranks * hyperparameters.gradient_accumulation_steps)
    for start in range(rank * share, wanted, share * ranks):
        part = slice(start, start + share)
        yield numbers[part], _batch(every, drawn[part], targets[part], turns[part], size)


def _batch(every: Examples, drawn: np.ndarray, targets: np.ndarray, turns: np.ndarray, size: int) -> Batch:
    points = size * size
    bits = np.unpackbits(every.planes[drawn], axis=1, count=game.PLANES * points)
    planes = bits.reshape(-1, game.PLANES, points)
    policies = every.policies[targets].astype(np.float32)
    moved = game.geometry(size).symmetries[turns].astype(np.int64)
    turned, aimed = np.empty_like(planes), np.empty_like(policies)
    np.put_along_axis(turned, np.broadcast_to(moved[:, None, :points], planes.shape), planes, axis=2)
    np.put_along_axis(aimed, moved, policies, axis=1)
    return (
        torch.from_numpy(turned).view(-1, game.PLANES, size, size),
        torch.from_numpy(aimed),
        torch.from_numpy(every.winners[targets].astype(np.float32)),
    )


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Nothing is to be prepared: games are played on the clock, and weights are files that the request names.

    Raises RequestError if a file that it names is not there.
    """
    if source is not None:
        raise RequestError(
            f"{config.benchmark} has no data set to prepare from {source}; leave `source` out."
        )
    reason = config.refuse()
    if reason:
        raise RequestError(reason)
    start = start_file(config)
    if start is not None and not start.is_file():
        raise RequestError(f"{config.benchmark}: there is no file {start}.")
    opponent_file(config)
    folder.mkdir(parents=True, exist_ok=True)


def start_file(config: Config) -> Path | None:
    """Path of the start weights; None if they are random."""
    return None if config.start_weights is None else Path(config.start_weights).expanduser()


def opponent_file(config: Config) -> Path | None:
    """Path of the target model; None if it is untrained. A name without a folder is a file of this reference.

    Raises RequestError if there is none, or another than the benchmark is defined with.
    """
    if config.opponent is None:
        raise RequestError(f"{config.benchmark} has no target model; set benchmark.opponent.")
    if config.opponent == UNTRAINED:
        path, digest = None, UNTRAINED
    else:
        path = Path(config.opponent).expanduser()
        path = Path(__file__).parent / path if path.parent == Path() else path
        if not path.is_file():
            raise RequestError(f"{config.benchmark}: there is no file {path}.")
        digest = prepared.digest(path)
    what = f"The target model {config.opponent} has"
    prepared.check_digest(config, what, digest, config.opponent_sha256, "Leave benchmark.opponent out.")
    return path


def synthetic(config: Config, samples: int, *, seed: int = 0) -> Batch:
    """Synthetic batch from its own generator: the side with more stones wins, and the first empty point is the move,
    which can be learnt. Reads no data."""
    generator = torch.Generator().manual_seed(seed)
    size = config.model.board_size
    stones = torch.randint(-1, 2, (samples, size * size), generator=generator)
    planes = torch.zeros(samples, game.PLANES, size * size, dtype=torch.uint8)
    planes[:, 0], planes[:, 1], planes[:, 8] = stones == 1, stones == -1, 1
    policies = torch.zeros(samples, size * size + 1)
    policies[torch.arange(samples), (stones == 0).int().argmax(dim=1)] = 1.0
    winners = stones.sum(dim=1).sign().float()
    return planes.view(samples, game.PLANES, size, size), policies, winners
