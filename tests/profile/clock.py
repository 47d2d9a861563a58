"""Time that passes where a test says so."""

import pytest

from train_bench.profile import timeline


class Clock:
    """Stands for the module `time`; threads that compute have a processor all the while."""

    def __init__(self):
        self.now = 100.0
        self.slept = 0.0

    def perf_counter(self):
        return self.now

    def thread_time(self):
        return self.now - self.slept

    def work(self, seconds):
        self.now += seconds

    def sleep(self, seconds):
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock of timelines and layers."""
    one = Clock()
    monkeypatch.setattr(timeline, "time", one)
    return one
