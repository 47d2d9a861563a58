"""Encoded data sets as the reference of flux1 writes them, in small: NumPy files in bytes, in Parquet files that
Hugging Face `datasets` merges and saves to disk. Files of `tests/references/recorded/flux1`; needs the packages
`datasets` and `pyarrow`.

    python bench/studies/record_flux1.py FOLDER
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SETS = (("cc12m_preprocessed", 7, 2), ("coco_preprocessed", 5, 1))
"""Folder, samples, and files of each set; the second has timesteps."""

SHAPES = {"t5_encodings": (3, 7), "clip_encodings": (5,), "mean": (3, 4, 4), "logvar": (3, 4, 4)}


def main(folder: Path) -> None:
    """Write both sets, and the encodings of the empty prompt."""
    import pyarrow
    from datasets import Dataset
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    kinds = {
        "__key__": pyarrow.string(),
        **dict.fromkeys(SHAPES, pyarrow.binary()),
        "timestep": pyarrow.int32(),
    }
    schema = pyarrow.schema(list(kinds.items()))
    for name, samples, files in SETS:
        rows = [row(rng, number, timed=name.startswith("coco")) for number in range(samples)]
        with tempfile.TemporaryDirectory() as scratch:
            with parquet.ParquetWriter(f"{scratch}/data_0_0000.parquet", schema) as writer:
                for first in range(0, samples, 3):
                    writer.write_table(pyarrow.Table.from_pylist(rows[first : first + 3], schema=schema))
            merged = Dataset.from_parquet(f"{scratch}/*.parquet", cache_dir=f"{scratch}/cache")
            merged.save_to_disk(folder / name, num_shards=files)
        (folder / name / "dataset_info.json").unlink()  # which says where the scratch folder was
    empty = folder / "empty_encodings"
    empty.mkdir(exist_ok=True)
    np.save(empty / "t5_empty.npy", rng.standard_normal((1, *SHAPES["t5_encodings"])).astype(np.float16))
    np.save(empty / "clip_empty.npy", rng.standard_normal((1, *SHAPES["clip_encodings"])).astype(np.float16))


def row(rng: np.random.Generator, number: int, *, timed: bool) -> dict[str, Any]:
    """A sample; bfloat16 as the upper half of float32."""
    found: dict[str, Any] = {"__key__": f"{number:06d}", "timestep": number % 8 if timed else None}
    for name, shape in SHAPES.items():
        bits = rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
        file = io.BytesIO()
        np.save(file, bits.astype(np.uint16))
        found[name] = file.getvalue()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
