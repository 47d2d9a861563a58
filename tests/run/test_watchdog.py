"""A rank that hangs says where, by itself."""

import threading
import time

import pytest

from tests.run.fakes import OneRank
from train_bench.run.watchdog import VERBS, RankWatchdog

LIMIT_SECONDS = 0.4


class Slow(OneRank):
    """A rank whose barrier takes a while; what the protocol demands and no test uses is there, too."""

    device = "cpu"

    def barrier(self):
        time.sleep(3 * LIMIT_SECONDS)

    def __getattr__(self, name):
        if name in VERBS:
            return lambda *args, **kwargs: name
        raise AttributeError(name)


@pytest.fixture
def watched(tmp_path):
    """A watchdog that has begun, what it said, and the rank that it counts."""
    said = []
    watchdog = RankWatchdog(LIMIT_SECONDS, tmp_path / "heartbeat", said.append)
    rank = watchdog.of(Slow())
    watchdog.start()
    yield rank, said, tmp_path / "heartbeat"
    watchdog.stop()
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_a_rank_that_does_steps_is_left_alone(watched):
    rank, said, path = watched
    first = None
    for _ in range(30):
        rank.step()
        time.sleep(LIMIT_SECONDS / 10)
        first = first or (path.exists() and path.stat().st_mtime_ns)
    assert said == []
    assert path.stat().st_mtime_ns > first


def test_a_rank_that_does_nothing_hangs(watched, capfd):
    _, said, _ = watched
    time.sleep(2 * LIMIT_SECONDS)
    assert said == ["hung: no step and no collective for 0.4 s (stall_limit_seconds)"]
    assert "test_a_rank_that_does_nothing_hangs" in capfd.readouterr().err, "where it hangs"


def test_a_rank_that_waits_for_others_says_in_which_verb(watched):
    rank, said, _ = watched
    rank.barrier()
    assert said == ["waited in barrier for 0.4 s (stall_limit_seconds)"]


def test_everything_that_parallel_promises_is_counted_and_passed_on(watched):
    rank, _, _ = watched
    assert {"forward", "backward", "step", "sum", "gather_objects", "barrier", "wrap"} <= set(VERBS)
    assert rank.wrap() == "wrap"
    assert (rank.rank, rank.size, rank.device) == (0, 1, "cpu")
    assert rank.from_rank_zero(3) == 3
