"""What ranks took, put together: the order of a run and what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.run.fakes import OneRank
from train_bench.run import order
from train_bench.run.order import order_fingerprint
from train_bench.task import SamplesTaken

STREAM = np.concatenate([np.random.default_rng(epoch).permutation(20) for epoch in range(3)])


def ranks_of(stream: np.ndarray, ranks: int, share: int, **changes: object) -> list[SamplesTaken]:
    """What ranks take of a stream, `share` samples in turn."""
    parts = [stream[first : first + share] for first in range(0, len(stream), share)]
    return [
        SamplesTaken(
            **{"trained": len(stream) // ranks, "order": parts[rank::ranks], "epoch": 20} | changes  # type: ignore[arg-type]
        )
        for rank in range(ranks)
    ]


def gathered(every: list[tuple[int, SamplesTaken]]) -> dict[str, Any]:
    """What rank 0 makes of which part of the batches each rank took, and of what it took."""

    class First(OneRank):
        def gather_objects(self, value: object) -> list[tuple[int, SamplesTaken]]:
            return every

    seen = order.gather(First(), every[0][1])  # type: ignore[arg-type]
    assert seen is not None
    return seen


@pytest.mark.parametrize(("ranks", "share"), [(1, 6), (2, 3), (3, 2), (2, 1)])
def test_the_order_is_the_same_whatever_the_number_of_ranks(ranks: int, share: int) -> None:
    alone = order_fingerprint(ranks_of(STREAM, 1, 12))
    several = order_fingerprint(ranks_of(STREAM, ranks, share))
    assert several.digest == alone.digest
    assert (several.ranks, several.trained, several.compared, several.repeated) == (ranks, 60, 60, 0)


def test_a_rank_tells_with_its_samples_which_part_of_the_batches_they_are() -> None:
    """Of ranks that compute the same samples together it is the same part."""
    told = []

    class OneOfFour(OneRank):
        rank, size, data_rank = 3, 4, 1

        def gather_objects(self, value):  # type: ignore[no-untyped-def]
            told.append(value)

    (taken,) = ranks_of(STREAM, 1, 3)
    assert order.gather(OneOfFour(), taken) is None  # type: ignore[arg-type]
    assert told == [(1, taken)]
