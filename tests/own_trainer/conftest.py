"""Benchmarks end with the test that made them."""

from contextlib import suppress

import pytest

from train_bench.own_trainer.benchmark import Benchmark


@pytest.fixture(autouse=True)
def ended(monkeypatch):
    """Not with the process of the tests, when their folders are gone."""
    begun = []
    monkeypatch.setattr(Benchmark, "_watch_the_end", lambda one: begun.append(one))
    yield
    for one in begun:
        with suppress(FileNotFoundError):  # where the test has ended it
            one._end()
