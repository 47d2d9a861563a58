"""Ranks of a user's own program: a barrier waits for the device of this rank first, then for the others."""

import sys
from types import SimpleNamespace

import pytest

from train_bench.own_trainer.ranks import OwnRanks


@pytest.fixture
def trace(monkeypatch):
    """torch as a program has it that trains on a GPU as one of two ranks."""
    trace = []
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: trace.append("device"))
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
        barrier=lambda: trace.append("ranks"),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, distributed=distributed))
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    return trace


def test_a_barrier_waits_for_the_device_and_then_for_the_other_ranks(trace):
    OwnRanks(None, None, None).barrier()
    assert trace == ["device", "ranks"]


def test_a_single_rank_waits_for_its_device(trace):
    OwnRanks(0, 1, None).barrier()
    assert trace == ["device"]


def test_a_program_that_communicates_by_itself_waits_for_rank_0_by_its_own_broadcast(trace):
    def broadcast(value):
        trace.append("broadcast")
        return "of rank 0"

    ranks = OwnRanks(1, 2, broadcast)
    ranks.barrier()
    assert trace == ["device", "broadcast"]
    assert ranks.from_rank_zero("own") == "of rank 0"


def test_a_device_that_the_program_has_not_used_is_left_alone(trace, monkeypatch):
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_initialized", lambda: False)
    OwnRanks(None, None, None).barrier()
    assert trace == ["ranks"]
