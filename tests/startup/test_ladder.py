"""The ladder, and the processes on it, which are fakes here."""

import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from train_bench.errors import LaunchError
from train_bench.startup import ladder, page_cache, started
from train_bench.startup.ladder import Subject
from train_bench.startup.weight_store import Tier

SCHEDSTAT = Path("/proc/self/schedstat")


@pytest.fixture(autouse=True)
def fake_processes(monkeypatch):
    monkeypatch.setattr(started, "MODULE", "tests.startup.fake_process")


@pytest.fixture
def measured(on_disk, in_memory):
    """A function that measures a subject that behaves as it is told."""
    path = on_disk / "weights.safetensors"
    save_file({"values": np.arange(50_000, dtype=np.float32)}, path)

    def measure(*levels, rounds=1, **described):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        subject = Subject(name="fake", described=described, weights=[(path, digest)], answer="right")
        tiers = {"disk": Tier(on_disk / "store"), "memory": Tier(in_memory / "store")}
        return ladder.measure(subject, levels or ladder.LEVELS, rounds, **tiers)

    return measure


def test_each_level_has_its_state_its_stages_and_the_right_answer(measured):
    content = measured(rounds=2)
    levels = {level["level"]: level for level in content["levels"]}
    assert [*levels] == ["L0", "L1", "L2", "L3", "L4"]
    assert all(level["right"] == 2 for level in levels.values())
    assert levels["L0"]["resident"]["most"] < page_cache.COLD
    assert all(levels[name]["resident"]["least"] > page_cache.WARM for name in ("L1", "L2", "L3", "L4"))
    for name in ("L0", "L1", "L2"):
        assert levels[name]["stages"]["process_and_imports"] > 0
    for name in ("L3", "L4"):
        assert levels[name]["stages"]["process_and_imports"] == levels[name]["stages"]["build"] == 0
    for each in content["rounds"]:
        for one in each.values():
            assert sum(one["stages"].values()) == pytest.approx(one["seconds"], abs=1e-6)
            assert one["seconds"] > 0
            assert one["waited"] >= 0 if SCHEDSTAT.exists() else one["waited"] is None


def test_levels_are_measured_in_their_order_whatever_the_order_of_their_names(measured):
    assert [level["level"] for level in measured("L4", "L1")["levels"]] == ["L1", "L4"]


def test_wrong_answers_are_counted_level_by_level(measured):
    content = measured("L1", "L2", behaviour="wrong")
    assert [level["right"] for level in content["levels"]] == [1, 0]


def test_start_weights_that_give_the_same_answer_prove_nothing(measured):
    with pytest.raises(LaunchError, match="The start weights of fake give the same first answer"):
        measured("L3", behaviour="always right")


def test_a_process_that_dies_is_reported_with_its_last_words(measured):
    with pytest.raises(LaunchError, match="died by signal 9: out of luck"):
        measured("L1", behaviour="dies")
    with pytest.raises(LaunchError, match="died by signal 9: out of luck"):
        measured("L3", behaviour="dies at map")


def test_a_kept_process_that_died_between_two_requests_is_reported(on_disk):
    with (
        pytest.raises(LaunchError, match="died by signal 9: it printed nothing"),
        started.start({"request": {"load": None}}, on_disk) as process,
    ):
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        process.ask({"load": "map"})


def test_a_write_into_mapped_weights_is_reported_as_what_it_is(measured):
    with pytest.raises(LaunchError, match="writes into its weights, which are mapped read-only"):
        measured("L2", behaviour="dies at map", signal=int(signal.SIGSEGV))


def test_a_refusal_of_a_process_is_the_error(measured):
    with pytest.raises(LaunchError, match=r"^The weights are wrong\.$"):
        measured("L1", behaviour="refuses")


def test_the_time_that_a_process_waited_is_that_since_the_last_answer(on_disk, monkeypatch):
    waited = iter([2.0, 2.5, None, 3.0, 3.5, 3.25])
    monkeypatch.setattr(started, "_waited_seconds", lambda pid: next(waited))
    with started.start({"request": {"load": None}}, on_disk) as process:
        found = [process.first["waited"], *(process.ask({"load": "map"})["waited"] for _ in range(5))]
    assert found == [2.0, 0.5, None, None, 0.5, 0.0], "from an unknown counter on, and after a thread ended"


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="this kernel does not count how long threads wait")
def test_waiting_is_that_of_the_kernel_by_thread(on_disk):
    with started.start({"request": {"load": None}}, on_disk) as process:  # which has one thread, and is idle
        before = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat").read_text().split()[1]
        assert started._waited_seconds(process.pid) >= int(before) / 1e9
    assert started._waited_seconds(2**22 + 1) is None


def test_no_process_is_left(on_disk):
    with started.start({"request": {"load": None}}, on_disk) as process:
        pid = process.first["pid"]
        assert pid == process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_is_not_done_is_ended_with_the_context(on_disk):
    with pytest.raises(KeyError), started.start({"request": {"load": None}}, on_disk) as process:
        os.kill(process.pid, signal.SIGSTOP)
        raise KeyError("x")
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_seconds_of_a_start_are_from_before_its_process_until_its_answer_arrived(on_disk, monkeypatch):
    ticks = iter([100, 900, 1000, 5000])
    monkeypatch.setattr(started.time, "monotonic_ns", lambda: next(ticks))
    with started.start({"request": {"load": None}}, on_disk) as process:
        assert (process.first["times"]["started"], process.first["times"]["answered"]) == (100, 900)
        asked = process.ask({"load": "map"})
    assert (asked["times"]["started"], asked["times"]["answered"]) == (1000, 5000)


def level(name, seconds, weights=0.0, inference=0.0):
    stages = {"process_and_imports": seconds - weights - inference, "build": 0.0}
    return {
        "level": name,
        "seconds": seconds,
        "stages": {**stages, "weights": weights, "first_inference": inference},
    }


def test_weights_matter_from_where_they_take_a_tenth_and_half_of_a_cold_start():
    """1 GB in 4 + 0.5 s that a kept process does not take, beside 3.5 s."""
    model = {"bytes": 900_000_000, "levels": [level("L0", 8.0, 4.0, 1.0), level("L4", 0.5, 0.0, 0.5)]}
    small = {"bytes": 10, "levels": []}
    matter = ladder.weights_matter([small, model])
    assert matter == {
        "bytes": 900_000_000,
        "bytes_per_second": pytest.approx(2e8),
        "seconds_without_weights": pytest.approx(3.5),
        "share": pytest.approx(4.5 / 8),
        "tenth_bytes": pytest.approx(2e8 * 3.5 / 9),
        "half_bytes": pytest.approx(2e8 * 3.5),
    }


def test_small_weights_do_not_say_from_which_size_on_they_matter():
    model = {"bytes": 10_000_000, "levels": [level("L0", 5.0, 0.1), level("L4", 0.5)]}
    matter = ladder.weights_matter([model])
    assert (matter["tenth_bytes"], matter["half_bytes"]) == (None, None)
    assert matter["share"] == pytest.approx(0.02)
    assert ladder.weights_matter([{"bytes": 1, "levels": [level("L0", 1.0)]}]) is None


@pytest.mark.parametrize(
    ("seconds", "ordered"),
    [((4, 3, 1, 0.5), True), ((4, 4, 1, 1), True), ((3, 4, 1, 0.5), False), ((4, 3, 0.5, 1), False)],
)
def test_a_round_is_ordered_if_no_level_takes_longer_than_the_one_before(seconds, ordered):
    each = {name: {"seconds": value} for name, value in zip(ladder.ORDERED, seconds, strict=True)}
    assert ladder._is_ordered(each) == ordered
