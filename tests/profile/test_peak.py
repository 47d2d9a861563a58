"""Peaks that are measured, and what moving bytes takes at them."""

from types import SimpleNamespace

import pytest
import torch

from train_bench.core.job import Precision
from train_bench.profile import peak
from train_bench.profile.peak import Peak


def test_bytes_move_at_the_best_rate_of_as_many_or_more():
    rates = Peak(flop_per_second=1.0, bytes_per_second={10: 5.0, 100: 20.0, 1000: 2.0}, source="stated")
    assert rates.moving(10) == 10 / 20
    assert rates.moving(100) == 100 / 20
    assert rates.moving(500) == 500 / 2
    assert rates.moving(5000) == 5000 / 2


def test_a_peak_is_measured_or_stated(monkeypatch):
    monkeypatch.setattr(peak, "SECONDS", 0.001)
    measured = peak.measure(torch.device("cpu"), Precision.fp32, None)
    assert measured.flop_per_second > 1e8
    assert min(measured.bytes_per_second.values()) > 1e6
    assert measured.source.startswith("measured here by a fp32 matrix product of size ")
    stated = peak.measure(torch.device("cpu"), Precision.fp32, 312.0)
    assert (stated.flop_per_second, stated.source) == (pytest.approx(312e12), "stated")


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
    rate = peak.per_second(gpu.work, torch.device("cuda"))
    assert rate == pytest.approx(1 / gpu.SECONDS_OF_A_CALL)
    assert gpu.calls > 100 * gpu.waits


def test_another_accelerator_is_timed_by_the_host_around_many_calls(monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(torch.accelerator, "synchronize", gpu.synchronize)
    monkeypatch.setattr(peak, "time", SimpleNamespace(perf_counter=lambda: gpu.clock))
    rate = peak.per_second(gpu.work, torch.device("xpu"))
    assert rate == pytest.approx(1 / gpu.SECONDS_OF_A_CALL, rel=0.2)
    assert gpu.calls > 100 * gpu.waits


def test_products_on_a_gpu_are_large_enough_for_its_rate():
    assert max(peak.SIDES["cuda"]) >= 8192
    assert max(peak.TRIAD_BYTES["cuda"]) >= 2**30


def test_arrays_take_at_most_half_of_the_free_memory_of_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**33))
    assert peak._fits(2**29, torch.device("cuda"))
    assert not peak._fits(2**29 + 1, torch.device("cuda"))
    assert peak._fits(2**40, torch.device("cpu"))
