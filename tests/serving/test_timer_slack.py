import sys
import threading

import pytest

from train_bench.serving.timer_slack import exact_timers, slack_ns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a timer slack")


def test_timers_of_threads_that_start_within_are_exact_and_those_of_before_come_back():
    before, found = slack_ns(), []
    with exact_timers():
        thread = threading.Thread(target=lambda: found.append(slack_ns()))
        thread.start()
        thread.join()
    assert found == [1]
    assert slack_ns() == before > 1


def test_an_error_within_leaves_the_timers_as_they_were():
    before = slack_ns()
    with pytest.raises(ValueError, match="within"), exact_timers():
        raise ValueError("within")
    assert slack_ns() == before
