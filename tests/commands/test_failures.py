"""Limits of a run as its parent sees them, and what it finds when a run is over."""

import json
import os

import pytest

from tests.commands.conftest import FakeLauncher
from tests.run.fakes import job
from train_bench.failures import GRACE_SECONDS, RunWatchdog, deaths
from train_bench.launcher import Death
from train_bench.plan.launch import Ended

START_SECONDS, STALL_SECONDS = 100.0, 50.0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def asked(tmp_path):
    """A job for four ranks on two hosts."""
    four = job(
        tmp_path,
        nodes=2,
        nproc_per_node=2,
        start_limit_seconds=START_SECONDS,
        stall_limit_seconds=STALL_SECONDS,
    )
    (four.ranks_folder / "arrived").mkdir(parents=True)
    return four


def arrive(asked, *names):
    for name in names:
        (asked.ranks_folder / "arrived" / name).touch()


def beat(asked, *, at_second):
    path = asked.ranks_folder / "pulse"
    path.touch()
    os.utime(path, (at_second, at_second))


def after(seconds, asked, clock=None, watchdog=None):
    """What a watchdog of `asked` says after `seconds`."""
    clock = clock or Clock()
    watchdog = watchdog or RunWatchdog(asked, clock)
    clock.now += seconds
    return watchdog.overdue()


def test_a_run_may_take_its_time_to_start(asked):
    assert after(START_SECONDS, asked) is None


def test_ranks_that_never_start_are_counted_by_host(asked):
    arrive(asked, "first_11", "first_12", "second_11")
    assert after(START_SECONDS + 1, asked) == (
        "4 ranks were asked for, but 3 started within 100 s (start_limit_seconds): 2 on first, 1 on second"
    )


def test_ranks_that_start_and_never_agree_are_ended_too(asked):
    arrive(asked, "first_11", "first_12", "second_11", "second_12")
    reason = after(START_SECONDS + 1, asked)
    assert reason == "4 ranks started, but they did not find each other within 100 s (start_limit_seconds)"


def test_signs_of_life_keep_a_run_going(asked):
    clock = Clock()
    watchdog = RunWatchdog(asked, clock)
    for second in range(1, 20):
        beat(asked, at_second=second)
        assert after(STALL_SECONDS, asked, clock, watchdog) is None


def test_a_run_without_a_sign_of_life_is_ended_after_its_ranks_could_do_so(asked):
    clock = Clock()
    watchdog = RunWatchdog(asked, clock)
    beat(asked, at_second=1)
    assert after(1, asked, clock, watchdog) is None
    assert after(STALL_SECONDS + GRACE_SECONDS, asked, clock, watchdog) is None
    assert after(1, asked, clock, watchdog) == "rank 0 gave no sign of life for 61 s (stall_limit_seconds)"


def found(asked, *, exit_code=1, stderr="", reason=None, elsewhere=(), whole=False):
    ended = Ended(exit_code=exit_code, stderr=stderr, reason=reason)
    return [str(death) for death in deaths(asked, FakeLauncher(), ended, elsewhere, whole=whole)]


def left(asked, rank, state, **more):
    path = asked.ranks_folder / f"rank_{rank}.json"
    path.write_text(json.dumps({"state": state, **more}))


def failed(asked, rank, error):
    left(asked, rank, "failed", error=error)


def test_a_good_run_has_no_deaths(asked):
    assert found(asked, exit_code=0, whole=True) == []


def test_ranks_that_all_finished_do_not_lose_the_result_by_how_they_end_afterwards(asked):
    for rank in range(4):
        left(asked, rank, "finished")
    assert found(asked, exit_code=250, whole=True) == []


def test_a_rank_that_dies_before_it_has_finished_is_found_though_the_log_is_whole(asked):
    for rank in range(3):
        left(asked, rank, "finished")
    left(asked, 3, "running")
    assert found(asked, exit_code=250, whole=True) != []


def test_a_launcher_that_ends_well_without_a_run_has_not_done_its_work(asked):
    assert found(asked, exit_code=0) == ["the launcher ended with exit code 0, and the log has no end"]


def test_a_limit_that_was_passed_comes_before_what_ranks_say(asked):
    failed(asked, 1, "connection closed")
    assert found(asked, reason="too late") == ["too late", "rank 1 failed: connection closed"]


def test_a_rank_that_was_killed_on_another_host_comes_before_those_that_miss_it(asked):
    failed(asked, 0, "connection closed")
    elsewhere = [Death(rank=3, how="killed by SIGKILL")]
    assert found(asked, elsewhere=elsewhere) == ["rank 3 killed by SIGKILL"]


def test_what_befell_another_host_comes_with_what_ranks_say(asked):
    failed(asked, 0, "connection closed")
    elsewhere = [Death(rank=None, how="host 1: torchrun itself killed by SIGKILL")]
    expected = ["host 1: torchrun itself killed by SIGKILL", "rank 0 failed: connection closed"]
    assert found(asked, elsewhere=elsewhere) == expected


def test_a_rank_that_could_not_join_is_heard_whatever_else_is_printed(asked):
    arrive(asked, "a_1", "b_2")
    (asked.ranks_folder / "arrived" / "a_3").write_text(json.dumps({"error": "This build has no NCCL."}))
    stderr = "train-bench: warning: something that has nothing to do with it"
    assert found(asked, stderr=stderr) == ["a rank could not join: This build has no NCCL."]
    failed(asked, 1, "connection closed")
    assert found(asked, stderr=stderr) == ["rank 1 failed: connection closed"]


def test_what_all_ranks_say_is_told_once(asked):
    for rank in range(4):
        failed(asked, rank, "4 ranks were asked for, but 2 answered.")
    assert found(asked) == ["rank 0 failed: 4 ranks were asked for, but 2 answered."]


def test_a_launcher_that_knows_nothing_is_told_by_its_exit_code(asked):
    class Silent(FakeLauncher):
        def deaths(self, exit_code, stderr):
            return ()

    ended = Ended(exit_code=7, stderr="")
    assert deaths(asked, Silent(), ended, (), whole=False) == (
        Death(rank=None, how="the launcher ended with exit code 7, and the log has no end"),
    )
