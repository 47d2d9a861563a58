"""Tensors of a safetensors file in its own pages: shared by all processes that map it, and read-only."""

from __future__ import annotations

import json
import mmap
import os
import warnings
from pathlib import Path

import torch

from train_bench.core import files
from train_bench.startup import weight_store

TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""Types of torch by their names in a header; a tensor of another type is left out."""

LENGTH_BYTES = 8
"""Length of the header, little-endian, which precedes it (https://github.com/huggingface/safetensors, Format)."""


def map_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by name, without a copy. All pages are mapped at once, so that none costs time in the first inference. A
    write into one ends the process (SIGSEGV); the mapping ends with its last tensor. Raises `RequestError` for a file
    that is no safetensors."""
    weight_store.validate(path)
    with files.opened(path) as file:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        size = os.fstat(file.fileno()).st_size
        mapping = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ)
    begin = LENGTH_BYTES + int.from_bytes(mapping[:LENGTH_BYTES], "little")
    header = json.loads(mapping[LENGTH_BYTES:begin])
    header.pop("__metadata__", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors, and says so
        return {
            name: _tensor(mapping, TYPES[one["dtype"]], one["shape"], begin + one["data_offsets"][0])
            for name, one in header.items()
            if one["dtype"] in TYPES
        }


def _tensor(mapping: mmap.mmap, kind: torch.dtype, shape: list[int], offset: int) -> torch.Tensor:
    count = 1
    for length in shape:
        count *= length
    if not count:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(mapping, dtype=kind, count=count, offset=offset).reshape(shape)
