"""A rank that hangs says where, by itself. The clock is injected: it stands still unless a test moves it."""

import threading
from types import SimpleNamespace

import pytest

from tests.command_line import wait_for
from tests.run.fakes import OneRank
from train_bench.run import watchdog as module
from train_bench.run.watchdog import VERBS, RankWatchdog

LIMIT_SECONDS = 0.4


class Slow(OneRank):
    """A rank whose barrier is what a test makes of it; what the protocol demands and no test uses is there, too."""

    device = "cpu"

    def barrier(self):
        self.at_barrier()

    def at_barrier(self): ...

    def __getattr__(self, name):
        if name in VERBS:
            return lambda *args, **kwargs: name
        raise AttributeError(name)


@pytest.fixture
def clock(monkeypatch):
    """The watchdog's clock: `now` in seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def watched(tmp_path, clock):
    """The counted rank, what the watchdog said, and its heartbeat. The watchdog has looked once."""
    said = []
    watchdog = RankWatchdog(LIMIT_SECONDS, tmp_path / "heartbeat", said.append)
    rank = watchdog.of(Slow())
    watchdog.start()
    wait_for((tmp_path / "heartbeat").exists)
    yield rank, said, tmp_path / "heartbeat"
    watchdog.stop()
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_a_rank_that_does_steps_is_left_alone(watched, clock):
    rank, said, heartbeat = watched
    for _ in range(5):
        clock.now += 0.9 * LIMIT_SECONDS
        heartbeat.unlink()
        rank.step()
        wait_for(heartbeat.exists)
    assert said == []


def test_a_rank_that_does_nothing_hangs(watched, clock, capfd):
    _, said, _ = watched
    clock.now += 2 * LIMIT_SECONDS
    wait_for(lambda: said)
    assert said == ["hung: no step and no collective for 0.4 s (stall_limit_seconds)"]
    assert "test_a_rank_that_does_nothing_hangs" in capfd.readouterr().err, "where it hangs"


def test_a_rank_that_waits_for_others_says_in_which_verb(watched, clock, monkeypatch):
    rank, said, heartbeat = watched

    def waits(_):
        wait_for(heartbeat.exists)
        clock.now += 2 * LIMIT_SECONDS
        wait_for(lambda: said)

    monkeypatch.setattr(Slow, "at_barrier", waits)
    heartbeat.unlink()
    rank.barrier()
    assert said == ["waited in barrier for 0.4 s (stall_limit_seconds)"]


def test_everything_that_parallel_promises_is_counted_and_passed_on(watched):
    rank, _, _ = watched
    assert {"forward", "backward", "step", "sum", "gather_objects", "barrier", "wrap"} <= set(VERBS)
    assert rank.wrap() == "wrap"
    assert (rank.rank, rank.size, rank.device) == (0, 1, "cpu")
    assert rank.from_rank_zero(3) == 3
