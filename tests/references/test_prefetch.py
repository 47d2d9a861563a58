"""Training batches copied beside the steps, by a fake of a stream; the real one needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.references.test_loading import Doubled
from train_bench.references.parts import loading
from train_bench.references.parts.prefetch import Parts, prefetched, side_of

CPU = torch.device("cpu")


class Pair(NamedTuple):
    values: torch.Tensor
    packing: torch.Tensor | None


class FakeSide:
    """Notes what is queued. Memory of a copy may be taken again, so copies that are not handed over are overwritten
    with the next."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.handed: list[int] = []
        self.inside = False

    @contextmanager
    def copying(self) -> Iterator[None]:
        self.diary.append("copy")
        self.inside = True
        yield
        self.inside = False

    def hand_over(self, tensors: list[torch.Tensor]) -> None:
        assert not self.inside
        self.diary.append(f"hand over {len(tensors)}")
        self.handed += [id(tensor) for tensor in tensors]


def tensors_of(part: Any) -> list[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        return [part]
    return [found for each in part for found in tensors_of(each)] if isinstance(part, (tuple, list)) else []


def test_a_batch_is_copied_when_it_is_asked_for_and_handed_over_before_it_is_given() -> None:
    side, taken = FakeSide(), []

    def made() -> Iterator[tuple[list[int], torch.Tensor]]:
        for number in range(3):
            taken.append(number)
            yield [number], torch.full((2,), number)

    for number, (items, batch) in enumerate(prefetched(made(), CPU, side)):
        assert items == [number] and torch.equal(batch, torch.full((2,), number))
        assert taken == list(range(number + 1))
        side.diary.append("step")
    assert side.diary == 3 * ["copy", "hand over 1", "step"]


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(3),
        (torch.arange(3), torch.ones(2, 2)),
        [torch.arange(3), torch.ones(2)],
        Pair(torch.arange(3), None),
        ([torch.arange(2), torch.arange(3)], [torch.ones(1)], torch.zeros(2)),
    ],
)
def test_batches_keep_their_shape_and_every_tensor_is_copied_on_the_stream_and_handed_over(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, moves, to = FakeSide(), [], torch.Tensor.to

    def watched(tensor: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
        moves.append((side.inside, args, named))
        return to(tensor, *args, **named).clone()

    monkeypatch.setattr(torch.Tensor, "to", watched)
    ((_, there),) = prefetched([(0, batch)], CPU, side)
    assert type(there) is type(batch)
    found, wanted = tensors_of(there), tensors_of(batch)
    assert moves == len(wanted) * [(True, (CPU,), {"non_blocking": True})]
    assert [id(tensor) for tensor in found] == side.handed
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_parts_are_joined_on_the_stream_and_what_is_joined_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side, joined, cat = FakeSide(), [], torch.cat

    def watched(tensors: Any) -> torch.Tensor:
        joined.append(side.inside)
        return cat(tensors)

    monkeypatch.setattr(torch, "cat", watched)
    parts = Parts([(torch.zeros(2, 3), [torch.arange(2)]), (torch.ones(1, 3), [torch.arange(2, 3)])])
    ((_, there),) = prefetched([(0, parts)], CPU, side)
    assert joined == [True, True] and side.diary == ["copy", "hand over 2"]
    assert [id(tensor) for tensor in tensors_of(there)] == side.handed
    assert isinstance(there, tuple) and there[0].tolist() == 2 * [[0, 0, 0]] + [[1, 1, 1]]
    assert isinstance(there[1], list) and there[1][0].tolist() == [0, 1, 2]


def test_objects_of_a_class_of_their_own_stay() -> None:
    batch = SimpleNamespace(images=torch.ones(1)), "name", 3, np.ones(2)
    side = FakeSide()
    ((_, there),) = prefetched([(0, batch)], CPU, side)
    assert there == batch and not side.handed


def test_a_loader_notes_a_batch_when_it_is_given_on_either_way() -> None:
    for side in (FakeSide(), None):
        loader = loading.loader(
            Doubled(),
            SimpleNamespace(workers=0, prefetch=2),
            CPU,
            [[3, 1], [0, 5], [2, 4]],
            collate=torch.tensor,
        )
        batches = loader.copied_by(side, CPU)
        assert next(batches).tolist() == [6, 2] and loader.record.counts == [2]
        assert next(batches).tolist() == [0, 10] and loader.record.counts == [4]
        assert [each.tolist() for each in loader.record.numbers] == [[3, 1], [0, 5]]


def test_only_a_gpu_has_a_stream_beside_its_steps() -> None:
    assert side_of(CPU) is None
