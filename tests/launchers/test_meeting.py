"""Ranks compare their devices before the first collective, and open their group with the limits of the job."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.run.fakes import job
from train_bench.core.job import Device
from train_bench.errors import LaunchError
from train_bench.launchers.parts import ddp, meeting
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.meeting import Place


def places(*rows):
    return [
        Place(rank=rank, host=host, device="cpu" if gpu is None else "cuda", gpu=gpu)
        for rank, (host, gpu) in enumerate(rows)
    ]


FITTING = {
    "processors alone": [("n1", None), ("n1", None), ("n2", None)],
    "a GPU each": [("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "GPU-c")],
    "GPUs without a UUID, known by their numbers": [("n1", "0"), ("n1", "1"), ("n2", "0")],
}


@pytest.mark.parametrize("rows", FITTING.values(), ids=FITTING)
def test_devices_that_fit_together_pass(rows):
    assert meeting.refuse_places(places(*rows), Device.auto) is None


def test_a_host_without_a_gpu_is_named_where_others_have_one():
    rows = [("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", None), ("n2", None)]
    assert meeting.refuse_places(places(*rows), Device.auto) == (
        "device=auto: PyTorch finds no GPU for 2 of 4 ranks (n2; first rank 2 on n2), and one for rank 0 on n1. Look "
        "at nvidia-smi on n2, leave these hosts out, or set device=cpu."
    )


def test_two_ranks_with_one_gpu_are_refused():
    reason = meeting.refuse_places(places(("n1", "GPU-a"), ("n2", "GPU-b"), ("n2", "GPU-b")), Device.cuda)
    assert reason.startswith(
        "Rank 1 and rank 2 on n2 have the same GPU (GPU-b). Give each rank one of its own"
    )


class Group:
    """What a process group was opened with; ranks meet through a store of this process."""

    def __init__(self, monkeypatch):
        store = dist.HashStore()
        monkeypatch.setattr(meeting, "rendezvous", lambda *_, **__: iter([(store, None, None)]))
        monkeypatch.setattr(meeting, "_meetings", iter([0] * 8))
        monkeypatch.setattr(dist, "init_process_group", lambda backend, **given: self.opened(backend, given))
        self.given = {}

    def opened(self, backend, given):
        self.given[given["rank"]] = {"backend": backend, **given}


@pytest.fixture
def group(monkeypatch):
    return Group(monkeypatch)


def meet(monkeypatch, devices, **changes):
    """The sentences with which ranks on these devices are refused, each in a thread of its own."""
    monkeypatch.setattr(
        meeting,
        "place_of",
        lambda device, rank: Place(rank=rank, host=f"n{rank}", device=device.type, gpu=f"GPU-{rank}"),
    )
    refused = {}

    def rank(number):
        try:
            meeting.open_group(job(Path("c"), **changes), devices[number], rank=number, size=len(devices))
        except LaunchError as error:
            refused[number] = str(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


def test_every_rank_ends_with_the_same_sentence_before_a_group_is_opened(monkeypatch, group):
    refused = meet(monkeypatch, [torch.device("cuda", 0), torch.device("cpu"), torch.device("cuda", 0)])
    assert len(refused) == 3 and len(set(refused.values())) == 1
    assert "(n1; first rank 1 on n1)" in refused[0]
    assert group.given == {}


def test_gpus_have_nccl_for_tensors_and_gloo_for_messages_and_are_named_to_it(monkeypatch, group):
    devices = [torch.device("cuda", number) for number in range(2)]
    assert meet(monkeypatch, devices, stall_limit_seconds=1200.0) == {}
    assert [group.given[rank]["backend"] for rank in range(2)] == ["cpu:gloo,cuda:nccl"] * 2
    assert [group.given[rank]["device_id"] for rank in range(2)] == devices


@pytest.mark.parametrize(
    ("limit", "timeout"),
    [(1200.0, timedelta(seconds=1260)), (None, meeting.NO_LIMIT), (5, timedelta(seconds=65))],
)
def test_a_collective_may_take_as_long_as_a_rank_may_stall(monkeypatch, group, limit, timeout):
    assert meet(monkeypatch, [torch.device("cpu")] * 2, stall_limit_seconds=limit) == {}
    assert [(one["backend"], one["timeout"], one["device_id"]) for one in group.given.values()] == [
        ("gloo", timeout, None)
    ] * 2


def test_a_rank_that_sees_one_gpu_takes_it_and_one_that_sees_fewer_than_ranks_is_refused(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert ddp._device(Device.cuda, 3) == torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert ddp._device(Device.auto, 3) == torch.device("cuda", 3)
    assert taken == [0, 3]
    with pytest.raises(LaunchError, match=r"Local rank 4 on \S+ needs a GPU of its own, but 4 were found"):
        ddp._device(Device.cuda, 4)


def test_messages_of_ranks_on_gpus_are_on_the_cpu(monkeypatch):
    parallel = TorchParallel(job(Path("c")), rank=0, local_rank=0, size=1)
    parallel.size, parallel.device, devices = 2, torch.device("cuda", 0), []
    monkeypatch.setattr(ddp.rank_messages, "gather", lambda *given: devices.append(given[3]))
    monkeypatch.setattr(ddp.rank_messages, "broadcast", lambda *given: devices.append(given[2]))
    parallel.gather_objects(1)
    parallel.from_rank_zero(1)
    assert devices == [torch.device("cpu")] * 2
