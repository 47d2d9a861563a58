"""Limits of a run as its parent sees them, and what it finds when a run is over."""

import json
import os

import pytest

from tests.fake_campaigns import FakeLauncher
from tests.run.fakes import job
from train_bench.campaign.failures import deaths
from train_bench.launcher import Death
from train_bench.observers.limits import GRACE_SECONDS, RunWatchdog
from train_bench.plan.process import Ended

START_SECONDS, STALL_SECONDS = 100.0, 50.0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def planned(tmp_path):
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


def arrive(planned, *names):
    for name in names:
        (planned.ranks_folder / "arrived" / name).touch()


def beat(planned, *, at_second):
    path = planned.ranks_folder / "heartbeat"
    path.touch()
    os.utime(path, (at_second, at_second))


def after(seconds, planned, clock=None, watchdog=None):
    """What a watchdog of `planned` says after `seconds`."""
    clock = clock or Clock()
    watchdog = watchdog or RunWatchdog(planned, clock)
    clock.now += seconds
    return watchdog.tick()


def test_a_run_may_take_its_time_to_start(planned):
    assert after(START_SECONDS, planned) is None


def test_ranks_that_never_start_are_counted_by_host(planned):
    arrive(planned, "first_11", "first_12", "second_11")
    assert after(START_SECONDS + 1, planned) == (
        "4 ranks were requested, but only 3 started within 100 s (start_limit_seconds): 2 on first, 1 on "
        "second"
    )


def test_ranks_that_start_and_never_agree_are_ended_too(planned):
    arrive(planned, "first_11", "first_12", "second_11", "second_12")
    reason = after(START_SECONDS + 1, planned)
    assert reason == "4 ranks started, but did not complete the rendezvous within 100 s (start_limit_seconds)"


def test_signs_of_life_keep_a_run_going(planned):
    clock = Clock()
    watchdog = RunWatchdog(planned, clock)
    for second in range(1, 20):
        beat(planned, at_second=second)
        assert after(STALL_SECONDS, planned, clock, watchdog) is None


def test_a_run_without_a_sign_of_life_is_ended_after_its_ranks_could_do_so(planned):
    clock = Clock()
    watchdog = RunWatchdog(planned, clock)
    beat(planned, at_second=1)
    assert after(1, planned, clock, watchdog) is None
    assert after(STALL_SECONDS + GRACE_SECONDS, planned, clock, watchdog) is None
    assert after(1, planned, clock, watchdog) == "no heartbeat of rank 0 for 61 s (stall_limit_seconds)"


def died(planned, *, exit_code=1, stderr="", reason=None, elsewhere=(), whole=False):
    ended = Ended(exit_code=exit_code, stderr=stderr, reason=reason)
    return [str(death) for death in deaths(planned, FakeLauncher(), ended, elsewhere, whole=whole)]


def left(planned, rank, state, **more):
    path = planned.ranks_folder / f"rank_{rank}.json"
    path.write_text(json.dumps({"state": state, **more}))


def failed(planned, rank, error):
    left(planned, rank, "failed", error=error)


def test_a_good_run_has_no_deaths(planned):
    assert died(planned, exit_code=0, whole=True) == []


def test_ranks_that_all_finished_do_not_lose_the_result_by_how_they_end_afterwards(planned):
    for rank in range(4):
        left(planned, rank, "finished")
    assert died(planned, exit_code=250, whole=True) == []


def test_a_rank_that_dies_before_it_has_finished_is_found_though_the_log_is_whole(planned):
    for rank in range(3):
        left(planned, rank, "finished")
    left(planned, 3, "running")
    assert died(planned, exit_code=250, whole=True) != []


def test_a_launcher_that_ends_well_without_a_run_has_not_done_its_work(planned):
    assert died(planned, exit_code=0) == ["the launcher ended with exit code 0, and the log has no run_stop"]


def test_a_limit_that_was_passed_comes_before_what_ranks_say(planned):
    failed(planned, 1, "connection closed")
    assert died(planned, reason="too late") == ["too late", "rank 1 failed: connection closed"]


def test_a_rank_that_was_killed_on_another_host_comes_before_those_that_miss_it(planned):
    failed(planned, 0, "connection closed")
    elsewhere = [Death(rank=3, how="killed by SIGKILL")]
    assert died(planned, elsewhere=elsewhere) == ["rank 3 killed by SIGKILL"]


def test_what_befell_another_host_comes_with_what_ranks_say(planned):
    failed(planned, 0, "connection closed")
    elsewhere = [Death(rank=None, how="host 1: torchrun itself killed by SIGKILL")]
    expected = ["host 1: torchrun itself killed by SIGKILL", "rank 0 failed: connection closed"]
    assert died(planned, elsewhere=elsewhere) == expected


def test_a_rank_that_could_not_join_is_heard_whatever_else_is_printed(planned):
    arrive(planned, "a_1", "b_2")
    (planned.ranks_folder / "arrived" / "a_3").write_text(json.dumps({"error": "This build has no NCCL."}))
    stderr = "train-bench: warning: something that has nothing to do with it"
    assert died(planned, stderr=stderr) == ["a rank could not join: This build has no NCCL."]
    failed(planned, 1, "connection closed")
    assert died(planned, stderr=stderr) == ["rank 1 failed: connection closed"]


def test_what_all_ranks_say_is_told_once(planned):
    for rank in range(4):
        failed(planned, rank, "4 ranks were requested, but 2 answered.")
    assert died(planned) == ["rank 0 failed: 4 ranks were requested, but 2 answered."]


def test_a_launcher_that_knows_nothing_is_told_by_its_exit_code(planned):
    class Silent(FakeLauncher):
        def deaths(self, exit_code, stderr):
            return ()

    ended = Ended(exit_code=7, stderr="")
    assert deaths(planned, Silent(), ended, (), whole=False) == (
        Death(rank=None, how="the launcher ended with exit code 7, and the log has no run_stop"),
    )


def test_a_run_whose_ranks_never_started_is_told_with_the_last_error_of_its_launcher(planned):
    stderr = "ValueError: the endpoint 192.0.2.1:1:1 is no address\nbye\n"
    ended = Ended(exit_code=-15, stderr=stderr, reason="only 0 started")
    found = [death.how for death in deaths(planned, FakeLauncher(), ended, (), whole=False)]
    assert found == ["only 0 started", f"last error of the launcher: {stderr.splitlines()[0]}"]
