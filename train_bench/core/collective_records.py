"""Files in which ranks that stall leave the last collectives that torch's flight recorder has of them."""

from __future__ import annotations

from pathlib import Path

from train_bench.core.job import Job

KEPT = 200
"""Collectives of a rank and a backend that are kept: ranks are apart by a few when one of them hangs."""

KEYS = (
    *("process_group", "collective_seq_id", "is_p2p", "profiling_name", "input_sizes", "input_dtypes"),
    *("state", "retired"),
)
"""Fields of the recorder's entries that say which collective it is, and whether it has ended."""


def record_file(job: Job, rank: int) -> Path:
    """Collectives of one rank by backend."""
    return job.ranks_folder / f"collectives_{rank}.json"
