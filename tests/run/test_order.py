"""What ranks took, put together: the order of a run and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.run.fakes import OneRank
from train_bench.run import order
from train_bench.run.order import OrderFingerprint, order_fingerprint
from train_bench.task import ORDER_KEPT, SamplesTaken

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


def test_ranks_that_compute_the_same_samples_together_count_once() -> None:
    seen = gathered([(part, taken) for part, taken in enumerate(ranks_of(STREAM, 2, 3)) for _ in range(2)])
    assert (seen["ranks"], seen["trained"], seen["repeated"], seen["contradicting"]) == (2, 60, 0, 0)
    assert seen["digest"] == order_fingerprint(ranks_of(STREAM, 1, 12)).digest


def test_ranks_that_take_others_than_those_that_they_compute_with_are_counted() -> None:
    first, second = ranks_of(STREAM, 2, 3)
    evaluated = replace(first, evaluated=[6], evaluation=[np.arange(6)])
    shorter = replace(first, order=first.order[:-1])
    assert gathered([(0, first), (0, second), (1, second), (1, second)])["contradicting"] == 1
    assert gathered([(0, first), (0, shorter), (1, second), (1, first)])["contradicting"] == 2
    assert gathered([(0, first), (0, evaluated)])["contradicting"] == 1
    assert gathered([(0, first), (1, second)])["contradicting"] == 0, "each rank takes samples of its own"


def test_another_order_has_another_digest() -> None:
    assert (
        order_fingerprint(ranks_of(STREAM, 1, 4)).digest
        != order_fingerprint(ranks_of(STREAM[::-1], 1, 4)).digest
    )


def test_the_same_shard_on_all_ranks_is_repeated() -> None:
    first = ranks_of(STREAM, 2, 2)[0]
    assert order_fingerprint([first, first]).repeated == 30


def test_a_permutation_of_its_own_on_each_rank_is_repeated() -> None:
    ranks = [ranks_of(np.random.default_rng(rank).permutation(20), 1, 2)[0] for rank in range(2)]
    assert order_fingerprint(ranks).repeated >= 5


def test_epochs_begin_where_the_stream_did() -> None:
    assert order_fingerprint(ranks_of(STREAM[7:], 1, 1, start=7)).repeated == 0
    assert order_fingerprint(ranks_of(STREAM[7:], 1, 1)).repeated > 0


def test_what_an_epoch_may_leave_to_the_next_is_not_repeated() -> None:
    stream = np.array([0, 1, 2, 3, 0, 4, 1, 2, 3, 4])
    assert order_fingerprint(ranks_of(stream, 1, 1, epoch=5)).repeated == 2
    assert order_fingerprint(ranks_of(stream, 1, 1, epoch=5, carried=1)).repeated == 0


def test_without_epochs_no_sample_comes_twice() -> None:
    assert order_fingerprint(ranks_of(np.arange(60), 2, 3, epoch=None)).repeated == 0
    assert order_fingerprint(ranks_of(STREAM, 2, 3, epoch=None)).repeated == 40


def test_an_evaluation_takes_every_sample_once_over_all_ranks() -> None:
    def fingerprint(*parts: list[int]) -> OrderFingerprint:
        return order_fingerprint(
            [
                SamplesTaken(trained=0, order=[], evaluated=[9, len(part)], evaluation=[np.array(part)])
                for part in parts
            ]
        )

    whole = fingerprint([0, 2, 4], [1, 3])
    assert (whole.evaluated, whole.evaluated_again) == (5, 0)
    same = fingerprint([0, 2, 4], [0, 2, 4])
    assert (same.evaluated, same.evaluated_again) == (6, 3)


def test_a_run_without_evaluation_evaluated_nothing() -> None:
    assert order_fingerprint([SamplesTaken(trained=0, order=[])]).evaluated == 0


def test_of_a_long_run_the_beginning_is_told() -> None:
    value = order_fingerprint(ranks_of(np.arange(ORDER_KEPT + 10), 2, 8, epoch=None))
    assert value.compared == ORDER_KEPT and value.trained == ORDER_KEPT + 10


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
