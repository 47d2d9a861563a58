"""Flight recorder of torch: the last collectives of this rank, written for the launching process when a rank stalls.
`campaign/stalled_collective.py` reads them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from train_bench.core import files
from train_bench.core.collective_records import KEPT, KEYS, record_file
from train_bench.core.job import Job

ENTRIES = "2000"


def switch_on() -> None:
    """Have torch record collectives: it reads the variables when it opens a process group."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        os.environ.setdefault(name, ENTRIES)


def dump(job: Job, rank: int) -> None:
    """Write the last collectives of this rank, if there are other ranks and torch has recorded any. An error does not
    hide that of the rank."""
    if job.world_size == 1:
        return
    with contextlib.suppress(Exception):
        recorded = {name: found for name, found in _recorders() if found}
        if recorded:
            files.write_json(record_file(job, rank), recorded)


def _recorders() -> list[tuple[str, list[dict[str, Any]]]]:
    """Records by backend; Gloo and NCCL keep their own."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    found = []
    for backend, name in (("gloo", "_dump_fr_trace_json"), ("nccl", "_dump_nccl_trace_json")):
        dumped = getattr(c10d, name, None)
        if dumped is not None:
            entries = json.loads(dumped(includeCollectives=True, onlyActive=False)).get("entries", [])
            found.append((backend, [{key: one.get(key) for key in KEYS} for one in entries[-KEPT:]]))
    return found
