"""The plan of a program of the user's own against what its logs say that ran."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.judge.tree import judge_folder

PROGRAM = {"program": {"files": []}}


def line(key, value):
    content = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps(content | {'metadata': {'file': 'x.py', 'lineno': 1}})}\n"


def judged(folder, *lines, world_size=1, device="cpu", precision="fp32"):
    """A campaign of a command, in whose logs these lines stand first."""
    job = {"nodes": 1, "device": device, "precision": precision}
    jobs = [{"index": index, "seed": 1000 + index, **job} for index in range(MINI.runs)]
    plan(folder, software=PROGRAM, world_size=world_size, jobs=jobs)
    campaign(folder, ["good"] * MINI.runs)
    for log in folder.glob("result_*.txt"):
        log.write_text("".join(lines) + log.read_text())
    found = judge_folder(folder, ruleset_name=None, rcp_folders=[])
    return found.score.world_size, {one.key: one.message for one in found.findings if one.check == "ran_as"}


def test_what_a_program_said_of_its_ranks_counts_and_not_the_plan(tmp_path):
    ran = line("program_ranks", {"ranks": 2, "hosts": 2, "devices": ["cuda"]})
    world_size, findings = judged(tmp_path, ran, line("precision", "bf16"))
    assert world_size == 2
    assert set(findings) == {"ranks", "hosts", "devices", "precision"}
    assert "The plan names 1 as ranks of the program, and its logs 2" in findings["ranks"]


def test_what_ran_as_planned_raises_no_question(tmp_path):
    ran = line("program_ranks", {"ranks": 2, "hosts": 1, "devices": ["cpu"]})
    assert judged(tmp_path, ran, world_size=2) == (2, {})


@pytest.mark.parametrize(
    "value", ["two", None, {"ranks": -1, "devices": "cpu"}, {"ranks": True}, {"ranks": [2]}]
)
def test_a_line_that_says_nothing_leaves_the_plan(tmp_path, value):
    assert judged(tmp_path, line("program_ranks", value)) == (1, {})


def test_a_log_without_the_line_is_asked_by_its_accelerators(tmp_path):
    lines = line("number_of_nodes", 2), line("accelerators_per_node", 4)
    assert judged(tmp_path, *lines)[0] == 8
