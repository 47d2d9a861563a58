"""The barrier of every launcher: the device of this rank is idle before it says that it is here."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from train_bench.launchers.deepspeed.engine import DeepSpeedParallel
from train_bench.launchers.parts import ddp
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel

HOROVOD = "train_bench.launchers.horovod.parallel"


@pytest.fixture
def trace(monkeypatch):
    """Whom a barrier waits for."""
    trace = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: trace.append(str(device)))
    monkeypatch.setattr(ddp.dist, "barrier", lambda: trace.append("ranks"))
    return trace


def rank(kind, device, size=2):
    """A rank of two without a process group."""
    one = object.__new__(kind)
    vars(one).update(rank=1, local_rank=1, size=size, device=torch.device(device))
    return one


@pytest.fixture
def horovod(monkeypatch, trace):
    """The `Parallel` of Horovod, beside a Horovod that is not installed."""
    for name in ("horovod", "horovod.torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    package = SimpleNamespace(barrier=lambda: trace.append("ranks"))
    sys.modules["horovod"].torch = sys.modules["horovod.torch"]
    launcher = importlib.import_module("train_bench.launchers.horovod")
    monkeypatch.delitem(sys.modules, HOROVOD, raising=False)
    monkeypatch.delattr(launcher, "parallel", raising=False)
    parallel = importlib.import_module(HOROVOD)
    monkeypatch.setattr(parallel, "hvd", package)
    yield parallel.HorovodParallel
    del sys.modules[HOROVOD], launcher.parallel


@pytest.mark.parametrize("kind", [TorchParallel, ShardedParallel, TensorParallel, DeepSpeedParallel])
def test_a_barrier_waits_for_the_device_and_then_for_the_other_ranks(trace, kind):
    rank(kind, "cuda:1").barrier()
    assert trace == ["cuda:1", "ranks"]


def test_the_barrier_of_horovod_waits_for_the_device_and_then_for_the_other_ranks(trace, horovod):
    rank(horovod, "cuda:1").barrier()
    assert trace == ["cuda:1", "ranks"]


def test_a_processor_is_never_behind_and_a_single_rank_waits_for_its_device_alone(trace):
    rank(TorchParallel, "cpu").barrier()
    rank(TorchParallel, "cuda:0", size=1).barrier()
    assert trace == ["ranks", "cuda:0"]
