"""Small data sets that fit into memory: generated clicks, and the census of incomes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from references.dlrm import records
from references.dlrm.clicks import clicks as generated
from references.dlrm.config import Config
from train_bench.bar import bar
from train_bench.errors import RequestError

ADULT = {"train": "adult.data.gz", "val": "adult.test.gz"}
ADULT_COLUMNS = 15
ADULT_INTEGERS = (0, 2, 4, 10, 11, 12)
ADULT_CATEGORIES = (1, 3, 5, 6, 7, 8, 9, 13)
ADULT_LABELS = {"<=50K": 0, ">50K": 1}
SHUFFLE_SEED = 0


def clicks(config: Config, folder: Path) -> dict[str, Any]:
    """Write the generated clicks; their order is random already."""
    model = config.model
    sizes = {"train": config.train_samples or 0, "val": config.eval_samples or 0}
    return {
        split: records.write_split(
            folder,
            split,
            bar(generated(samples, number, model.dense_features, model.table_rows), f"clicks, {split}"),
            model,
        )
        for number, (split, samples) in enumerate(sizes.items())
    }


def adult(config: Config, folder: Path, source: Path) -> dict[str, Any]:
    """Write the incomes of `adult.data.gz` (training, shuffled) and `adult.test.gz`, lines of comma-separated
    values. Categories are numbered in the order of the alphabet over both files."""
    lines = {split: _adult_lines(source / name) for split, name in ADULT.items()}
    both = [fields for part in lines.values() for fields in part]
    numbers = [
        {name: number for number, name in enumerate(sorted({fields[column] for fields in both}))}
        for column in ADULT_CATEGORIES
    ]
    found = [len(names) for names in numbers]
    if found != list(config.model.table_rows):
        raise RequestError(
            f"The categories of {source} have {found} values; {config.benchmark} has tables of "
            f"{list(config.model.table_rows)} rows. Fetch the data set again."
        )
    entries = {}
    for split, part in lines.items():
        block = np.array(
            [
                [
                    ADULT_LABELS[fields[-1]],
                    *(int(fields[column]) for column in ADULT_INTEGERS),
                    *(names[fields[column]] for names, column in zip(numbers, ADULT_CATEGORIES, strict=True)),
                ]
                for fields in part
            ],
            dtype=np.int64,
        )
        if split == "train":
            block = np.random.default_rng(SHUFFLE_SEED).permutation(block)
        entries[split] = records.write_split(folder, split, [block], config.model)
    return entries


def _adult_lines(path: Path) -> list[list[str]]:
    """The fields of every line, checked."""
    try:
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {error}. Fetch it again.") from error
    lines = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]
    for number, fields in enumerate(lines, start=1):
        if len(fields) != ADULT_COLUMNS:
            raise RequestError(
                f"Record {number} of {path} has {len(fields)} fields; {ADULT_COLUMNS} are needed. Fetch it again."
            )
        if fields[-1] not in ADULT_LABELS:
            raise RequestError(
                f"Record {number} of {path} has the label {fields[-1]}; allowed are {' and '.join(ADULT_LABELS)}."
            )
        strange = [fields[column] for column in ADULT_INTEGERS if not fields[column].isdigit()]
        if strange:
            raise RequestError(
                f"Record {number} of {path} has '{strange[0]}' where a number of at least 0 is needed."
            )
    return lines
