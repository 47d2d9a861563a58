"""Data sets as distributed or generated, read for packing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.bert import grammar, packed, tfrecord
from train_bench.references.bert.config import Config, Data
from train_bench.references.bert.examples import SPECIAL, UNKNOWN, Document, pack
from train_bench.references.parts import prepared

CHUNK = 4096
"""Examples in memory while TFRecord files are packed."""

LARGEST_TEXT = 1 << 30
"""Bytes of a file of plain text, which is held in memory."""

EVALUATION_FILE = "eval_10k"
TITLE = re.compile(r"=\s[^=].*[^=]\s=")
END_OF_SENTENCE = "."
SEEDS = {"train": 20200101, "val": 20200102}
"""Seeds of generated text and of the masks of text."""

Chunks = Callable[[], Iterable[np.ndarray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One packed file: its name, the bytes of its source, and its rows."""

    name: str
    size: int
    chunks: Chunks


Source = Mapping[str, Sequence[Part]]
"""Parts by split."""


def wikipedia(config: Config, root: Path) -> Source:
    """Ready examples as the benchmark's reference makes them: part-* files train, eval_10k* evaluates."""
    train = sorted(path for path in root.rglob("part-*") if path.is_file())
    val = sorted(path for path in root.rglob(f"{EVALUATION_FILE}*") if path.is_file())
    if not train or len(val) != 1:
        raise RequestError(
            f"{root} has {len(train)} files part-* and {len(val)} files {EVALUATION_FILE}*; needed are the TFRecord "
            "files of the training set and the one of the evaluation set, as the benchmark's reference "
            "implementation makes them of the Wikipedia dump of 2020-01-01."
        )
    _check_published_md5(root, val[0], config.data)
    return {"train": _tfrecords(train, config), "val": _tfrecords(val, config)}


def _check_published_md5(root: Path, evaluation: Path, data: Data) -> None:
    size = evaluation.stat().st_size
    if data.eval_file_bytes not in (None, size):
        raise RequestError(
            f"{evaluation} has {size} bytes; the published evaluation set has {data.eval_file_bytes}. It comes from "
            "eval.txt with random_seed 12345 and the 10,000 examples that the reference's program picks; make it again."
        )
    for name, published in data.md5.items():
        for path in sorted(root.rglob(name)):
            md5 = prepared.digest(path, "md5")
            if md5 != published:
                raise RequestError(
                    f"{path} has md5 {md5}; the published one is {published}. Fetch or make it again, and the "
                    "examples that were made with it."
                )


def _tfrecords(paths: list[Path], config: Config) -> list[Part]:
    return [
        Part(name=path.name, size=path.stat().st_size, chunks=partial(read_tfrecords, path, config))
        for path in paths
    ]


def read_tfrecords(path: Path, config: Config) -> Iterator[np.ndarray]:
    """The examples of a file as rows, a few thousand at a time."""
    rows = np.zeros(CHUNK, dtype=packed.row_type(config.data.sequence_length, config.data.predictions))
    number = -1
    used = 0
    for number, record in enumerate(tfrecord.records(path)):
        try:
            _fill(rows[used : used + 1], tfrecord.features(record), config)
        except (tfrecord.Malformed, ValueError) as error:
            raise RequestError(f"{path}, record {number}: {error}.") from error
        used += 1
        if used == CHUNK:
            yield rows
            rows, used = np.zeros_like(rows), 0
    if number < 0:
        raise RequestError(f"{path} has no records. Fetch or make the file again.")
    yield rows[:used]


def _fill(row: np.ndarray, features: Mapping[str, np.ndarray], config: Config) -> None:
    """Parse one example into one row. Raises ValueError with the error, the value and what is allowed."""
    length, predictions = config.data.sequence_length, config.data.predictions
    sizes = {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), length),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), predictions),
        "next_sentence_labels": 1,
    }
    for name, size in sizes.items():
        if name not in features:
            raise ValueError(f"it has no feature {name}; it has {', '.join(sorted(features)) or 'none'}")
        if len(features[name]) != size:
            raise ValueError(f"{name} has {len(features[name])} values; allowed are {size}")
    tokens = _in_range("input_ids", features, config.model.vocabulary)
    segments = _in_range("segment_ids", features, 2)
    used = _prefix("input_mask", features)
    masked = _prefix("masked_lm_weights", features)
    first, places = used - int(segments.sum()), np.arange(length)
    if not np.array_equal(segments, (places >= first) & (places < used)):
        raise ValueError("segment_ids are not zeros, then ones up to the end of the text, then zeros")
    row["tokens"] = tokens
    row["length"] = used
    row["first"] = first
    row["random_next"] = _in_range("next_sentence_labels", features, 2)[0]
    row["masked"] = masked
    row["positions"] = _in_range("masked_lm_positions", features, max(1, used))
    row["words"] = _in_range("masked_lm_ids", features, config.model.vocabulary)


def _in_range(name: str, features: Mapping[str, np.ndarray], end: int) -> np.ndarray:
    values = features[name]
    if values.dtype.kind != "i" or values.min() < 0 or values.max() >= end:
        raise ValueError(
            f"{name} has values from {values.min()} to {values.max()}; allowed are 0 to {end - 1}"
        )
    return values


def _prefix(name: str, features: Mapping[str, np.ndarray]) -> int:
    """Number of ones before the trailing zeros."""
    count = int(features[name].sum())
    if not np.array_equal(features[name], np.arange(len(features[name])) < count):
        raise ValueError(f"{name} is not a row of ones before a row of zeros")
    return count


def text(config: Config, root: Path) -> Source:
    """Plain text with words split by spaces and headings between equals signs: `data.train_file` trains and
    gives the vocabulary, `data.eval_file` evaluates."""
    paths = {"train": root / config.data.train_file, "val": root / config.data.eval_file}
    read = {split: _read(path) for split, path in paths.items()}
    ids = _vocabulary(read["train"], config.model.vocabulary)
    return {
        split: [
            Part(
                name=paths[split].name,
                size=paths[split].stat().st_size,
                chunks=_packing(_numbered(articles, ids), config, split),
            )
        ]
        for split, articles in read.items()
    }


def _read(path: Path) -> list[list[list[str]]]:
    """Words by sentence by article."""
    try:
        lines = files.read_bytes(path, largest=LARGEST_TEXT).decode("utf-8").lower().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read as text: {error}.") from error
    articles: list[list[list[str]]] = [[]]
    for line in lines:
        if TITLE.fullmatch(line.strip()):
            articles.append([])
        elif words := line.split():
            articles[-1].extend(_sentences(words))
    articles = [article for article in articles if article]
    if len(articles) < 2:
        raise RequestError(
            f"{path} has {len(articles)} articles; at least 2 are needed, each under a line ' = Title = '."
        )
    return articles


def _sentences(words: list[str]) -> Iterator[list[str]]:
    start = 0
    for end, word in enumerate(words, start=1):
        if word == END_OF_SENTENCE or end == len(words):
            yield words[start:end]
            start = end


def _vocabulary(articles: list[list[list[str]]], size: int) -> dict[str, int]:
    """Ids of the most frequent words, equals in the order of the alphabet."""
    counts = Counter(word for article in articles for sentence in article for word in sentence)
    del counts["<unk>"]
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: size - SPECIAL]
    if len(ranked) < size - SPECIAL:
        raise RequestError(
            f"The training text has {len(ranked)} different words; model.vocabulary={size} needs at least "
            f"{size - SPECIAL}."
        )
    return {word: SPECIAL + place for place, word in enumerate(ranked)}


def _numbered(articles: list[list[list[str]]], ids: Mapping[str, int]) -> list[Document]:
    return [[[ids.get(word, UNKNOWN) for word in sentence] for sentence in article] for article in articles]


def generated(config: Config) -> Source:
    """Text of the invented language, other draws for each split."""
    if config.model.vocabulary != grammar.VOCABULARY:
        raise RequestError(
            f"model.vocabulary is {config.model.vocabulary}; the generated text has {grammar.VOCABULARY} words."
        )
    counts = {"train": config.data.train_documents, "val": config.data.eval_documents}
    return {
        split: [
            Part(
                name="grammar",
                size=count,
                chunks=_packing(grammar.documents(count, SEEDS[split]), config, split),
            )
        ]
        for split, count in counts.items()
    }


def _packing(documents: list[Document], config: Config, split: str) -> Chunks:
    """Examples of documents; the evaluation set sees every text once."""

    def chunks() -> list[np.ndarray]:
        wanted = config.train_samples if split == "train" else config.eval_samples
        copies = config.data.copies if split == "train" else 1
        return [pack(documents, config.data, config.model.vocabulary, SEEDS[split], copies)[:wanted]]

    return chunks
