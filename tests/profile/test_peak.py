"""Peaks that are measured, and what moving bytes takes at them."""

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
