"""How long ranks waited for a processor, and whose fault that was."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.run.fakes import OneRank
from train_bench.core import control_groups
from train_bench.run import processors
from train_bench.run.processors import cpu_times_between, gather, lost_share, read_cpu_times

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how long a thread waits")
SPIN = "import time\nwhile time.process_time() < 0.3: pass"


class Ranks(OneRank):
    """This rank among others, which saw what they are given."""

    def __init__(self, *others):
        self.others, self.size = others, len(others) + 1

    def gather_objects(self, value):
        return [value, *self.others]


def seen(**changes):
    """Ten seconds of a rank that had a processor of a machine with two to itself."""
    usual = {
        "machine": "a",
        "seconds": 10.0,
        "ran": 10.0,
        "waited": 0.1,
        "busy": {0: 10.0, 1: 0.0},
        "steal": {0: 0.0, 1: 0.0},
        "throttled": 0.0,
    }
    return usual | changes


def lost(*ranks):
    first, *others = ranks
    return gather(Ranks(*others), first)["lost"]


def spin():
    """Takes 0.3 s of a processor, however long that lasts on a machine with other work."""
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


@pytest.fixture
def one_processor():
    """This process and what it starts share one processor."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    yield
    os.sched_setaffinity(0, mine)


@ON_LINUX
def test_a_look_costs_little():
    start = time.process_time()
    for _ in range(20):
        read_cpu_times()
    assert (time.process_time() - start) / 20 < 0.02


@ON_LINUX
def test_another_process_on_the_same_processor_is_seen(one_processor):
    before, alone = read_cpu_times(), time.process_time()
    with subprocess.Popen([sys.executable, "-c", SPIN]):
        spin()
        waited = cpu_times_between(before, read_cpu_times())
        alone = time.process_time() - alone
    assert waited["waited"] > 0.1
    assert waited["ran"] > alone + 0.05, "the other one is a child of this one, as a loader of a rank is"


@ON_LINUX
def test_threads_that_have_ended_are_not_subtracted():
    thread = threading.Thread(target=spin)
    thread.start()
    before = read_cpu_times()
    thread.join()
    assert cpu_times_between(before, read_cpu_times())["waited"] >= 0


@ON_LINUX
def test_what_is_read_is_about_this_machine():
    before, alone = read_cpu_times(), time.process_time()
    spin()
    now = read_cpu_times()
    assert set(now.busy) == os.sched_getaffinity(0)
    assert now.throttled >= 0
    assert now.ran - before.ran == pytest.approx(time.process_time() - alone, abs=0.3)


def test_a_system_that_does_not_count_says_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert read_cpu_times() is None
    assert cpu_times_between(None, None) is None
    assert gather(Ranks(seen()), None) is None


def test_a_kernel_that_does_not_count_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(processors, "PROC", tmp_path)
    assert read_cpu_times() is None


def test_a_rank_alone_has_lost_nothing():
    assert lost(seen()) < 0.01


def test_other_work_that_leaves_a_processor_free_is_no_loss():
    assert lost(seen(busy={0: 10.0, 1: 10.0}, waited=0.1)) < 0.01


def test_other_work_on_the_same_processors_is_a_loss():
    # Three busy threads share two processors; two of them are the rank's.
    assert lost(seen(ran=13.3, waited=6.7, busy={0: 10.0, 1: 10.0})) > 0.1


def test_ranks_that_wait_for_each_other_have_themselves_to_blame():
    crowded = seen(ran=10.0, waited=10.0, busy={0: 10.0, 1: 10.0})
    assert lost(crowded, crowded) == 0.0


def test_a_limit_and_other_guests_are_losses():
    assert lost(seen(throttled=3.0)) > 0.25
    assert lost(seen(steal={0: 3.0, 1: 0.0})) > 0.25


def test_the_machine_that_lost_most_is_told():
    good = seen()
    bad = seen(machine="b", waited=10.0, busy={0: 10.0, 1: 10.0})
    worst = gather(Ranks(bad, good), good)
    assert worst["machines"] == 2
    assert worst["lost"] == pytest.approx(lost_share(worst), abs=1e-3)
    assert worst["lost"] > 0.2


def test_a_run_of_no_length_has_lost_nothing():
    assert lost(seen(ran=0.0, busy={0: 0.0, 1: 0.0})) == 0.0


@pytest.mark.parametrize(
    ("groups", "counted", "seconds"),
    [
        ("0::/job\n", {"job/cpu.stat": "nr_throttled 4\nthrottled_usec 2500000\n"}, 2.5),
        (
            "0::/job/step\n",
            {"job/cpu.stat": "throttled_usec 1000000\n", "job/step/cpu.stat": "nr_periods 0\n"},
            1,
        ),
        ("5:cpu,cpuacct:/job\n0::/\n", {"cpu,cpuacct/job/cpu.stat": "throttled_time 3000000000\n"}, 3),
        ("0::/gone\n", {}, 0),
    ],
)
def test_limits_are_found_in_both_kinds_of_control_groups_and_above(
    monkeypatch, tmp_path, groups, counted, seconds
):
    (tmp_path / "own").write_text(groups)
    for name, text in counted.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "MOUNTED", tmp_path / "cgroup")
    assert processors._throttled() == seconds


@ON_LINUX
@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_the_seconds_of_a_rank_are_those_of_a_clock_that_nobody_can_set(monkeypatch, jump):
    """The judge holds the log's own window against them."""
    clocks = SimpleNamespace(wall=1_700_000_000.0, monotonic=50.0)
    fake = SimpleNamespace(
        time=lambda: clocks.wall, monotonic=lambda: clocks.monotonic, process_time=time.process_time
    )
    monkeypatch.setattr(processors, "time", fake)
    before = read_cpu_times()
    clocks.wall += jump
    clocks.monotonic += 12.5
    assert cpu_times_between(before, read_cpu_times())["seconds"] == 12.5
