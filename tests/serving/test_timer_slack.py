import ctypes
import sys
import threading

import pytest

from train_bench.serving import timer_slack
from train_bench.serving.timer_slack import exact_timers, slack_ns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a timer slack")


@pytest.fixture
def before():
    """Slack of this thread before the test: 12 microseconds, whatever the machine has."""
    of_machine, prctl = slack_ns(), ctypes.CDLL(None).prctl
    prctl(timer_slack.PR_SET_TIMERSLACK, ctypes.c_ulong(12_000), 0, 0, 0)
    if slack_ns() != 12_000:
        pytest.skip("the kernel keeps its slack")
    yield 12_000
    prctl(timer_slack.PR_SET_TIMERSLACK, ctypes.c_ulong(max(1, of_machine)), 0, 0, 0)


def test_timers_of_threads_that_start_within_are_exact_and_those_of_before_come_back(before):
    found = []
    with exact_timers():
        thread = threading.Thread(target=lambda: found.append(slack_ns()))
        thread.start()
        thread.join()
    assert found == [1]
    assert slack_ns() == before


def test_an_error_within_leaves_the_timers_as_they_were(before):
    with pytest.raises(ValueError, match="within"), exact_timers():
        raise ValueError("within")
    assert slack_ns() == before
