"""Multi-hot categories: the category itself and other rows drawn once, the same wherever it occurs.

The drawn rows of a table are a file of little-endian int32 (rows, others), mapped into memory. They are drawn as the
reference of the benchmark draws them, table after table, by numpy's legacy generator with seed 0, so that they are
those of its published data set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.errors import RequestError
from train_bench.references.dlrm_dcnv2.config import Config, Model
from train_bench.references.parts import prepared
from train_bench.references.parts.fingerprint import mapped

SEED = 0
DRAWN_AT_ONCE = 1 << 20
DTYPE = np.dtype("<i4")


def write(model: Model, folder: Path) -> None:
    """Draw the other rows of all tables, unless they are there."""
    if all(prepared.finished(_file(folder, table), made_from) for table, made_from in _drawn(model)):
        return
    generator = np.random.RandomState(SEED)
    for table, made_from in _drawn(model):
        rows, others = made_from["rows"], made_from["others"]
        prepared.write_file(_file(folder, table), _draws(generator, rows, others), made_from, {})


def _draws(generator: np.random.RandomState, rows: int, others: int) -> Iterator[bytes]:
    """Draws in parts, equal to a single draw."""
    part = max(1, DRAWN_AT_ONCE // others)
    for first in range(0, rows, part):
        count = min(part, rows - first)
        yield generator.randint(0, rows, size=(count, others)).astype(DTYPE).tobytes()


def _drawn(model: Model) -> Iterator[tuple[int, dict[str, Any]]]:
    """Tables with multi-hot rows, and the origin of their file."""
    for table, (rows, hot) in enumerate(zip(model.rows, model.multi_hot, strict=True)):
        if hot > 1:
            yield table, {"table": table, "rows": rows, "others": hot - 1}


def _file(folder: Path, table: int) -> Path:
    return folder / f"multi_hot_{table}.bin"


class MultiHot:
    """The drawn rows in a folder, mapped when they are first read, in whichever process reads them."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._model, self._folder = config.model, folder
        self._maps: dict[int, np.ndarray] | None = None
        for table, made_from in _drawn(config.model):
            path = _file(folder, table)
            entry = prepared.finished(path, made_from)
            if entry is None:
                raise RequestError(
                    f"{path} is missing or was made for other tables; run train-bench prepare "
                    f"benchmark={config.benchmark} data_dir={folder} again."
                )
            prepared.check_file(path, entry, contents=config.data.verify)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": None}

    def rows(self, categories: np.ndarray) -> np.ndarray:
        """int64 (n, rows looked up), table after table, of int64 (n, tables)."""
        if self._maps is None:
            self._maps = {
                table: mapped(_file(self._folder, table), DTYPE).reshape(made_from["rows"], -1)
                for table, made_from in _drawn(self._model)
            }
        rows, place = np.empty((len(categories), sum(self._model.multi_hot)), dtype=np.int64), 0
        for table, hot in enumerate(self._model.multi_hot):
            own = rows[:, place] = categories[:, table]
            if hot > 1:
                rows[:, place + 1 : place + hot] = self._maps[table][own]
            place += hot
        return rows
