"""Rates of a device, measured by its own clock."""

from types import SimpleNamespace

import pytest
import torch

from train_bench.run import microbenchmarks


class FakeGpu:
    """A GPU whose queue takes `SECONDS_OF_A_CALL` a call, behind a host whose every wait takes a hundred times that."""

    SECONDS_OF_A_CALL = 20e-6

    def __init__(self):
        self.clock, self.calls, self.waits = 0.0, 0, 0

    def work(self):
        self.clock += self.SECONDS_OF_A_CALL
        self.calls += 1

    def synchronize(self, device):
        self.clock += 100 * self.SECONDS_OF_A_CALL
        self.waits += 1

    def event(self, *, enable_timing):
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu):
        self.gpu, self.seconds = gpu, 0.0

    def record(self):
        self.seconds = self.gpu.clock

    def elapsed_time(self, later):
        return 1000 * (later.seconds - self.seconds)


def test_a_gpu_is_timed_by_events_around_many_calls_and_waited_for_once_each_time(monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    rate = microbenchmarks.per_second(gpu.work, torch.device("cuda"))
    assert rate == pytest.approx(1 / gpu.SECONDS_OF_A_CALL)
    assert gpu.calls > 100 * gpu.waits


def test_another_accelerator_is_timed_by_the_host_around_many_calls(monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(torch.accelerator, "synchronize", gpu.synchronize)
    monkeypatch.setattr(microbenchmarks, "time", SimpleNamespace(perf_counter=lambda: gpu.clock))
    rate = microbenchmarks.per_second(gpu.work, torch.device("xpu"))
    assert rate == pytest.approx(1 / gpu.SECONDS_OF_A_CALL, rel=0.2)
    assert gpu.calls > 100 * gpu.waits
