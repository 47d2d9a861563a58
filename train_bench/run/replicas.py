"""Replica check: all ranks hold the same model at the end of the run; through `Parallel` alone, so that it works with
every launcher.

Ranks that do not average their gradients each train a model of their own. Rank 0 evaluates well all the same, so
nothing else of a run shows it. The digest does the same for two runs: with the same seed on machines of one type the
model is the same bit by bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from train_bench.parallel import Parallel

if TYPE_CHECKING:
    import torch


def compare(parallel: Parallel) -> dict[str, Any]:
    """Compare the replicas; called by every rank, one alone included. On rank 0, as logged: how many `ranks` and
    `tensors` were compared, the `digest` of rank 0's, whether all are `equal` bit by bit, else how many are
    `differing`, the name of the `first` of them and its `largest_difference` from rank 0's (None where numbers are not
    finite or shapes differ).

    One tensor at a time is on its way to the processor; between ranks go digests, and the first tensor that
    differs.
    """
    digests = {name: _digest(tensor) for name, tensor in parallel.replicated()}
    of_first = parallel.from_rank_zero(digests)
    mine = [name for name in of_first | digests if digests.get(name) != of_first.get(name)]
    gathered = parallel.gather_objects(mine) or []
    differing = parallel.from_rank_zero(list(dict.fromkeys(name for names in gathered for name in names)))
    seen = {
        "ranks": parallel.size,
        "tensors": len(digests),
        "equal": not differing,
        "digest": hashlib.sha256(json.dumps(of_first).encode()).hexdigest()[:16],
    }
    if not differing:
        return seen
    order = list(of_first)
    first = min(differing, key=lambda name: order.index(name) if name in of_first else len(order))
    largest = _largest_difference(parallel, first)
    return seen | {"differing": len(differing), "first": first, "largest_difference": largest}


def _digest(tensor: torch.Tensor) -> str:
    import torch

    values = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{values.dtype} {tuple(values.shape)}".encode())
    digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _largest_difference(parallel: Parallel, name: str) -> float | None:
    """Largest difference of one tensor, which only some ranks may have."""
    tensor = None
    for other, one in parallel.replicated():  # to the end, because ranks may exchange for each
        if other == name:
            tensor = one
    shapes = parallel.gather_objects(None if tensor is None else tuple(tensor.shape))
    alike = parallel.from_rank_zero(shapes is not None and len(set(shapes)) == 1)
    if tensor is None or not alike:
        return None
    mine = tensor.detach().double()
    of_first = parallel.sum(mine if parallel.rank == 0 else mine.new_zeros(mine.shape))
    apart = float((mine - of_first).abs().max())
    gathered = parallel.gather_objects(apart) or [apart]
    return max(gathered) if all(map(math.isfinite, gathered)) else None
