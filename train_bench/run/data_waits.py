"""Waits of the ranks of a run for their data, which their tasks have counted."""

from __future__ import annotations

from typing import Any

from train_bench.run.processors import Ranks


def gather(ranks: Ranks, seconds: float | None) -> dict[str, Any] | None:
    """Called by every rank with what it has waited. On rank 0, as logged: milliseconds by rank; None where a rank does
    not know them."""
    waited = ranks.gather_objects(seconds)
    if waited is None or None in waited:
        return None
    return {"milliseconds": [round(1000 * each) for each in waited if each is not None]}
