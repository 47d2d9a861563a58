"""Two real ranks under one clock: what one of them does alone, it does to both."""

import json
import subprocess
import sys

import pytest

from tests.run.test_timed_run import keys, only
from tests.run.two_ranks import SLOW_SECONDS

ENDED_IN_VAIN_SECONDS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What both ranks left; they are started once."""
    folder = tmp_path_factory.mktemp("two_ranks")
    command = [sys.executable, "-m", "tests.run.two_ranks", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=ENDED_IN_VAIN_SECONDS)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def seen(folder):
    """By scenario, what ranks 0 and 1 saw."""
    ranks = [json.loads((folder / f"seen_{rank}.json").read_text()) for rank in range(2)]
    return {name: (ranks[0][name], ranks[1][name]) for name in ranks[0]}


def lines(folder, name):
    text = (folder / name / "result_0.txt").read_text()
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]


@pytest.mark.parametrize("line", ["init_stop", "run_start"])
def test_the_slowest_rank_has_built_its_model_before_rank_0_writes_the_line(seen, line):
    first, second = seen["clock"]
    assert first["at"][line] >= second["at"]["build"]


def test_no_rank_opens_data_before_rank_0_has_written_run_start(folder, seen):
    first, second = seen["clock"]
    assert second["at"]["open_data"] >= first["at"]["run_start"]
    (start,) = only(lines(folder, "clock"), "run_start")
    assert min(rank["at"]["open_data"] for rank in seen["clock"]) * 1000 >= start["time_ms"]


def test_the_clock_stops_when_rank_0_has_evaluated(folder, seen):
    (stop,) = only(lines(folder, "clock"), "run_stop")
    assert stop["time_ms"] >= int(seen["clock"][0]["at"]["last evaluation"] * 1000)


def test_what_rank_0_measured_ends_both_ranks_in_the_same_block(seen):
    did = ["build", "open_data", "train_until 100", "evaluate", "train_until 200", "evaluate"]
    assert [(one["status"], one["did"]) for one in seen["clock"]] == [("success", did)] * 2


def test_ranks_whose_clocks_differ_write_the_checkpoints_that_are_due_on_rank_0(folder, seen):
    did = [
        "build",
        "open_data",
        *("train_until 100", "evaluate", "save"),
        *("train_until 200", "evaluate", "train_until 300", "evaluate"),
    ]
    assert [one["did"] for one in seen["checkpoints"]] == [did] * 2
    assert keys(lines(folder, "checkpoints")).count("checkpoint_stop") == 1


def test_a_program_of_the_users_has_the_same_clock(seen):
    """Ranks that prepare something between both calls are waited for, too."""
    first, second = seen["own"]
    assert first["init_stop"] >= second["build"]
    assert first["run_start"] >= second["prepared"] + SLOW_SECONDS, "the line takes rank 0 so long"
    assert second["open_data"] >= first["run_start"]


def test_what_is_gathered_behind_the_clock_is_that_of_both_ranks(folder):
    told = {event["key"]: event["value"] for event in lines(folder, "clock")}
    assert told["order_fingerprint"]["ranks"] == 2
    assert (told["replicas"]["ranks"], told["replicas"]["equal"]) == (2, True)


def test_rank_1_writes_no_log(folder):
    assert [path.name for path in folder.glob("*/result_*")] == ["result_0.txt"] * 3
