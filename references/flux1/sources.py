"""Sources of encoded images and prompts: the reference's encoded data sets, and generated ones.

Encoded data sets stay where they are, 2.5 TB of them: `prepare` writes an index of the places of their values. Values
are NumPy files in bytes, of uint16 that are bfloat16 bit for bit.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.flux1 import arrow, mixture
from train_bench.references.flux1.config import Config

COLUMNS = {"text": "t5_encodings", "pooled": "clip_encodings", "mean": "mean", "logvar": "logvar"}
"""Parts of a sample, and the columns that hold them."""

TIMESTEP = "timestep"
STATE = "state.json"
"""The file of a saved data set that names its files in their order."""


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts of a sample."""
    model = config.model
    latent = (model.channels, model.latent_size, model.latent_size)
    text = (model.text_length, model.text_width)
    return {"text": text, "pooled": (model.pooled_width,), "mean": latent, "logvar": latent}


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """float (...) -> uint16 (...), the bits of the nearest bfloat16."""
    return (
        torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).bfloat16().view(torch.uint16).numpy()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(ABC):
    """A file of samples: what identifies it, its path where it stays in place, and its content: of a file in place the
    index, int64 (5,) a sample; else the samples themselves."""

    made_from: dict[str, Any]
    in_place: Path | None

    @abstractmethod
    def contents(self) -> Iterator[bytes]:
        """Bytes of sample after sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files of samples by split, and the parts `text` and `pooled` of the empty prompt, uint16."""

    pieces: Mapping[str, Sequence[Piece]]
    empty: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded(Piece):
    """A file of a saved data set."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    timed: bool

    def contents(self) -> Iterator[bytes]:
        """Places of each sample's parts and timestep; -1 where a training sample has none."""
        columns = [*COLUMNS.values(), *([TIMESTEP] if self.timed else [])]
        for batch in arrow.spans(self.path, columns):
            places = [self._places(part, batch[column]) for part, column in COLUMNS.items()]
            rows = len(places[0])
            places.append(batch[TIMESTEP].first if self.timed else np.full(rows, -1))
            yield np.stack(places, axis=1).astype("<i8").tobytes()

    def _places(self, part: str, span: arrow.Span) -> np.ndarray:
        """First bytes of the numbers, behind the head of their NumPy file; the heads of a batch are alike."""
        if len(span.first) == 0:
            return span.first
        with self.path.open("rb") as file:
            file.seek(int(span.first[0]))
            given = io.BytesIO(file.read(min(int(span.length[0]), 4096)))
        shape, kind, head = _head(given)
        size = 2 * int(np.prod(self.shapes[part]))
        wrong = np.flatnonzero(span.length != head + size)
        if shape != self.shapes[part] or kind != np.dtype("<u2") or len(wrong):
            row = int(wrong[0]) if len(wrong) else 0
            raise RequestError(
                f"{self.path}: {COLUMNS[part]} of sample {row} of a batch has {int(span.length[row])} bytes, and the "
                f"first is {kind} {shape}; needed is uint16 {self.shapes[part]}, {size} bytes behind a head of {head}. "
                "It was encoded for another benchmark."
            )
        return span.first + head


def _head(file: io.BytesIO) -> tuple[tuple[int, ...] | None, Any, int]:
    """Shape and type of a NumPy file, and the bytes before its numbers; None and 0 where it is none."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, kind = read(file)
    except ValueError:
        return None, None, 0
    return (None if by_columns and len(shape) > 1 else shape), kind, file.tell()


def preprocessed(config: Config, source: Path) -> Source:
    """The reference's folders of encoded data sets."""
    given = config.data
    pieces = {
        "train": _encoded(config, source / given.train_folder, timed=False),
        "val": _encoded(config, source / given.eval_folder, timed=True),
    }
    empty = {
        part: _empty(source / given.empty_folder / name, shapes(config)[part])
        for part, name in (("text", "t5_empty.npy"), ("pooled", "clip_empty.npy"))
    }
    return Source(pieces=pieces, empty=empty)


def _encoded(config: Config, folder: Path, *, timed: bool) -> list[Encoded]:
    state = folder / STATE
    if not state.is_file():
        raise RequestError(
            f"{folder} has no {STATE}; needed is a data set that Hugging Face datasets saved to disk. Fetch it, or "
            "name its folder in benchmark.data."
        )
    content = files.read_json(state)
    named = content.get("_data_files") if isinstance(content, dict) else None
    given = [one.get("filename") for one in named if isinstance(one, dict)] if isinstance(named, list) else []
    names = [name for name in given if isinstance(name, str) and Path(name).name == name]
    if not names or names != given:
        raise RequestError(
            f"{state} names the files {given}; needed are names of files beside it. Fetch it again."
        )
    lacking = [name for name in names if not (folder / name).is_file()]
    if lacking:
        raise RequestError(
            f"{folder} lacks {len(lacking)} of {len(names)} files, the first {lacking[0]}; fetch it whole, and prepare "
            "again."
        )
    return [
        Encoded(
            made_from={"file": name, "bytes": (folder / name).stat().st_size},
            in_place=(folder / name).resolve(),
            path=folder / name,
            shapes=shapes(config),
            timed=timed,
        )
        for name in names
    ]


def _empty(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The encoding of the empty prompt, which the reference saves in float16 with a dimension for the batch."""
    if not path.is_file():
        raise RequestError(f"{path} is not there; needed is the encoding of the empty prompt. Fetch it.")
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, OSError) as error:
        raise RequestError(f"{path} is not a NumPy file: {error}. Fetch it again.") from error
    if found.shape != (1, *shape) or found.dtype.kind != "f":
        raise RequestError(
            f"{path} has the shape {found.shape} and the type {found.dtype}; needed is {(1, *shape)} of floats."
        )
    return as_bfloat16(found[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated(Piece):
    """Samples drawn from the mixture."""

    config: Config
    split: str
    samples: int

    def contents(self) -> Iterator[bytes]:
        """Parts of each sample, then its timestep, int32."""
        model, given = self.config.model, self.config.data
        prompts, means = mixture.draw(self.samples, self.split)
        text, pooled = mixture.encodings(model.text_length, model.text_width, model.pooled_width)
        mean = means / given.scale + given.shift
        parts = [as_bfloat16(text[prompts]), as_bfloat16(pooled[prompts]), as_bfloat16(mean)]
        parts.append(as_bfloat16(np.full(mean.shape, mixture.log_variance(given.scale))))
        for row in range(self.samples):
            timestep = row % given.timesteps if self.split == "val" else -1
            yield b"".join(
                [*(part[row].tobytes() for part in parts), timestep.to_bytes(4, "little", signed=True)]
            )


def generated(config: Config) -> Source:
    """The mixture of Gaussians."""
    model = config.model
    if (model.channels, model.latent_size) != (mixture.CHANNELS, mixture.SIDE):
        raise RequestError(
            f"model.channels is {model.channels} and model.latent_size {model.latent_size}; generated images have "
            f"{mixture.CHANNELS} channels of {mixture.SIDE} x {mixture.SIDE}."
        )
    if model.text_length < 2:
        raise RequestError(f"model.text_length is {model.text_length}; prompts have two words.")
    text, pooled = mixture.encodings(model.text_length, model.text_width, model.pooled_width)
    counts = {"train": config.train_samples or 0, "val": config.eval_samples or 0}
    pieces = {
        split: [
            Generated(
                made_from={"samples": samples}, in_place=None, config=config, split=split, samples=samples
            )
        ]
        for split, samples in counts.items()
    }
    return Source(pieces=pieces, empty={"text": as_bfloat16(text[-1]), "pooled": as_bfloat16(pooled[-1])})
