"""The order of a run."""

from __future__ import annotations

import itertools

import pytest

from train_bench.references.parts import stream


def sampler(*, seed: int = 7, **changes: int) -> stream.Sampler:
    options = {"global_batch_size": 12, "microbatches": 1, "rank": 0, "ranks": 1}
    return stream.Sampler(order=stream.Shuffled(samples=50, seed=seed), **{**options, **changes})


def take(items: stream.Sampler, count: int) -> list[list[tuple[int, int]]]:
    return list(itertools.islice(items, count))


def test_every_epoch_visits_every_example_once_in_another_order() -> None:
    flat = [index for batch in take(sampler(), 25) for index, _ in batch]
    epochs = [flat[first : first + 50] for first in range(0, 300, 50)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 1), (3, 2), (1, 4)])
def test_ranks_and_microbatches_share_the_same_global_batches(ranks: int, microbatches: int) -> None:
    whole = take(sampler(), 10)
    parts = [
        take(sampler(rank=r, ranks=ranks, microbatches=microbatches), 10 * microbatches) for r in range(ranks)
    ]
    for step, batch in enumerate(whole):
        mine = [parts[r][step * microbatches + m] for m in range(microbatches) for r in range(ranks)]
        assert [item for part in mine for item in part] == batch


def test_the_order_follows_the_seed_and_can_start_anywhere() -> None:
    assert take(sampler(), 9)[5:] == take(sampler(first_iteration=5), 4)
    assert take(sampler(), 3) != take(sampler(seed=8), 3)


def test_parts_alternate_and_an_epoch_takes_as_many_samples_of_each_as_the_smallest_has() -> None:
    order = stream.Alternating(parts=(20, 17), seed=7)
    alternating = stream.Sampler(order=order, global_batch_size=34, microbatches=1, rank=0, ranks=1)
    epochs = [[index for index, _ in batch] for batch in take(alternating, 3)]
    assert order.epoch == 34
    for epoch in epochs:
        assert all((index >= 20) == (place % 2 == 1) for place, index in enumerate(epoch))
        assert len(set(epoch)) == 34 and set(epoch[1::2]) == set(range(20, 37))
    assert epochs[0] != epochs[1] and set(epochs[0][::2]) != set(epochs[1][::2])
    in_two = stream.Sampler(
        order=order, global_batch_size=34, microbatches=1, rank=1, ranks=2, first_iteration=1
    )
    assert [index for index, _ in take(in_two, 1)[0]] == epochs[1][17:]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 60])
def test_an_evaluation_sees_every_example_once_in_full_batches_as_many_on_each_rank(ranks: int) -> None:
    orders = [stream.evaluation_order(50, 8, rank, ranks) for rank in range(ranks)]
    assert len(set(map(len, orders))) == 1
    batches = [batch for order in orders for batch in order]
    assert {len(batch) for batch in batches} == {8}
    assert sorted(index for batch in batches for index in batch if index < 50) == list(range(50))
