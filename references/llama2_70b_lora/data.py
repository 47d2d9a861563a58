"""Data of the fine-tuning benchmark: preparation, access, synthetic batches.

A sample is a sequence of tokens that stands for itself, and for each of them the same number as its label, or
`NOT_COUNTED`: in a loss and in an evaluation, tokens that count are predicted from those before them in their sequence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_bench.core import files
from train_bench.errors import RequestError, UnknownName
from train_bench.references.llama2_70b_lora import dialect
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.parts import arrays, prepared
from train_bench.references.parts.arrays import open_splits
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.decoder.loss import NO_TARGET

__all__ = ["NOT_COUNTED", "open_splits", "prepare", "start_weights_file", "synthetic"]

NOT_COUNTED = NO_TARGET
"""The label of a token that is not predicted."""

LARGEST_LINE = 16 * 2**20
"""Bytes of a sequence as a line of JSON; one of 8192 tokens has some 100,000."""

PATTERNS = {"train": "train*.jsonl", "val": "validation*.jsonl"}


def prepare(config: Config, folder: Path, source: Path | None) -> None:
    """Write all sequences into `folder`; verified.

    `source` holds the packed sequences (not needed for generated text). All of them are in memory. Returns at once if
    everything is there. Never downloads; refuses start weights that are not there.
    """
    if config.data.origin == "dialect" and config.model.vocabulary != grammar.VOCABULARY:
        raise RequestError(
            f"model.vocabulary is {config.model.vocabulary}; the generated text has {grammar.VOCABULARY} tokens."
        )
    start_weights_file(config)
    if arrays.is_written(config, folder):
        return
    if config.data.origin == "dialect":
        splits = _generated(config)
    elif config.data.origin == "packed":
        root = prepared.given_source(config, config.data.origin, source)
        splits = {split: _packed(config, root, pattern) for split, pattern in PATTERNS.items()}
    else:
        raise UnknownName(what="data origin", name=config.data.origin, known=["packed", "dialect"])
    arrays.write(config, folder, splits)


def start_weights_file(config: Config) -> Path | None:
    """Path of the start weights; None if they are random.

    Raises RequestError if nothing is there, or another file than the benchmark is defined with.
    """
    path, wanted = config.start_weights_path(), config.start_weights_sha256
    if path is None:
        return None
    if wanted is None:
        if not path.exists():
            raise RequestError(
                f"benchmark.start_weights={config.start_weights} is {path}, where nothing is. Fetch the weights that "
                f"{config.benchmark} starts from to there, or give an absolute path or one that begins in data_dir "
                f"({config.data_dir})."
            )
        return path
    next_step = "Leave benchmark.start_weights out; if it was, install train-bench again."
    if not path.is_file():
        raise RequestError(f"{config.benchmark}: there is no file {path} to start from. {next_step}")
    prepared.check_digest(config, f"The start weights {path} have", prepared.digest(path), wanted, next_step)
    return path


def _generated(config: Config) -> dict[str, dict[str, np.ndarray]]:
    counts = {"train": config.train_samples, "val": config.eval_samples}
    splits = {}
    for split, count in counts.items():
        tokens = dialect.sequences(count or 0, config.data.sequence_length, dialect.SEEDS[split])
        splits[split] = {"tokens": tokens, arrays.LABELS: tokens}
    return splits


def _packed(config: Config, root: Path, pattern: str) -> dict[str, np.ndarray]:
    rows = [row for path in sorted(root.glob(pattern)) for row in _rows(config, path)]
    if not rows:
        raise RequestError(
            f"{root} has no sequences in files {pattern}; needed are the packed ones as JSON lines, "
            f"{PATTERNS['train']} and {PATTERNS['val']}."
        )
    return {"tokens": np.stack([row[0] for row in rows]), arrays.LABELS: np.stack([row[1] for row in rows])}


def _rows(config: Config, path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with files.opened(path) as file:
        number = 0
        while line := file.readline(LARGEST_LINE):
            number += 1
            yield _row(config, line, f"{path}, line {number}")


def _row(config: Config, line: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and labels, int32 (length,) each."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where} is not valid JSON: {error}. Make the file again.") from error
    given = content if isinstance(content, dict) else {}
    tokens = _numbers(config, given.get("input_ids"), f"{where}: input_ids")
    labels = _numbers(config, given.get("labels", given.get("input_ids")), f"{where}: labels")
    if not ((tokens >= 0) & (tokens < config.model.vocabulary)).all():
        raise RequestError(
            f"{where}: input_ids go from {tokens.min()} to {tokens.max()}; allowed are 0 to "
            f"{config.model.vocabulary - 1}."
        )
    counted = labels != NOT_COUNTED
    if (labels[counted] != tokens[counted]).any() or not counted[1:].any():
        raise RequestError(
            f"{where}: labels are the tokens themselves or {NOT_COUNTED}, and at least one behind the first counts."
        )
    return tokens, labels


def _numbers(config: Config, values: Any, what: str) -> np.ndarray:
    length = config.data.sequence_length
    whole = isinstance(values, list) and all(type(one) is int and abs(one) < 2**31 for one in values)
    if not whole or len(values) != length:
        raise RequestError(f"{what} has to be a list of {length} integers. Make the file again.")
    return np.array(values, dtype=np.int32)


def synthetic(config: Config, samples: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Synthetic batch, labels and tokens, from its own generator: ascending numbers, which can be learnt. Reads no
    data."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(config.model.vocabulary, size=(samples, 1))
    counted = (starts + np.arange(config.data.sequence_length)) % config.model.vocabulary
    tokens = torch.from_numpy(counted.astype(np.int32))
    return tokens, tokens.clone()
