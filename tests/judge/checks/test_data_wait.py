"""Waits for data are for review from a tenth of the time on, with the loader processes that the ranks had."""

import json

import pytest

from tests.judge.checks.test_campaign_checks import folder
from tests.judge.checks.test_cheats import edit_log
from tests.judge.checks.test_recorded import asked, planned
from train_bench.judge.tree import judge_folder

assert folder  # a fixture

CORES = {"cores": 12, "threads": 12, "loader_processes": 1}
GPU = {"accelerators": ["H100"], "rank_cores": CORES}


def waiting(folder, system, *milliseconds):
    """The campaign of the fixture, whose ranks waited so long for data in run 3. All runs take 63 s."""
    planned(folder, system=system)
    value = {"milliseconds": list(milliseconds)} if milliseconds else None
    file = folder / "result_3.txt"
    prefix, _, last = file.read_text().rstrip().splitlines()[-1].partition(" ")
    line = json.dumps(json.loads(last) | {"key": "data_wait", "value": value})
    file.write_text(f"{file.read_text().rstrip()}\n{prefix} {line}\n")
    return folder


def seconds(folder):
    score = judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[folder / "none"]).score
    return 60 * score.runs[3].minutes


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        (CORES, "1 loader process(es) on 12 core(s); the run took"),
        (CORES, "benchmark.data.workers=11 would use its cores."),
        (CORES | {"loader_processes": 11}, "more cores for a rank, or data that cost less to read"),
        (CORES | {"loader_processes": 0}, "no loader processes on 12 core(s), so that training made its own"),
    ],
)
def test_a_long_wait_is_for_review_with_its_reason(folder, cores, said):
    window = seconds(planned(folder))
    (message,) = asked(waiting(folder, GPU | {"rank_cores": cores}, 10, round(500 * window)), "data_wait")
    assert message.startswith("In 1 of 5 runs a rank waited for data for more than 10 % of the time")
    assert f"in result_3.txt for 50 % ({window / 2:.4g} of {window:.4g} s)" in message
    assert said in message


@pytest.mark.parametrize("more", [0, 1])
def test_a_tenth_is_not_long_and_a_millisecond_more_is(folder, more):
    messages = asked(waiting(folder, GPU, round(100 * seconds(planned(folder))) + more), "data_wait")
    assert len(messages) == more
    assert all("more than 10.000 % of the time" in one for one in messages)  # told apart from the share


@pytest.mark.parametrize("processes", [0, 1])
def test_on_a_cpu_batches_that_training_makes_are_no_wait(folder, processes):
    made = {"accelerators": [], "rank_cores": CORES | {"loader_processes": processes}}
    assert len(asked(waiting(folder, made, 31_500), "data_wait")) == processes


@pytest.mark.parametrize("value", [None, 5, {"milliseconds": 5}, {"milliseconds": ["x"]}])
def test_without_the_line_nothing_is_said(folder, value):
    waiting(folder, GPU)
    edit_log(
        folder / "result_3.txt", lambda one: one | {"value": value} if one["key"] == "data_wait" else one
    )
    assert asked(folder, "data_wait") == []
