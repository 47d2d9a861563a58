"""The plan of a program of the user's own against what its logs say that ran."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.compare.differences import find_differences
from train_bench.judge.tree import judge_folder
from train_bench.store.feed import _entry as entry_row

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


def test_a_run_on_other_ranks_than_the_others_leaves_their_number_unknown_and_is_counted(tmp_path):
    judged(tmp_path, line("program_ranks", {"ranks": 1}))
    log = tmp_path / "result_3.txt"
    log.write_text(log.read_text().replace('{"ranks": 1}', '{"ranks": 2}'))
    found = judge_folder(tmp_path, ruleset_name=None, rcp_folders=[])
    (message,) = [one.message for one in found.findings if one.check == "ran_as"]
    assert found.score.world_size is None
    assert "its logs 2 (1 of 5 runs)" in message


def test_a_log_that_ends_before_the_line_does_not_bring_the_plan_back(tmp_path):
    judged(tmp_path, line("program_ranks", {"ranks": 2}))
    (tmp_path / "result_3.txt").write_text("")
    assert judge_folder(tmp_path, ruleset_name=None, rcp_folders=[]).score.world_size == 2


@pytest.mark.parametrize("precision", ["FP32", "float32", "torch.float32"])
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_other_names_of_what_was_planned_raise_no_question(tmp_path, precision, device):
    lines = line("program_ranks", {"ranks": 1, "devices": [device]}), line("precision", precision)
    assert judged(tmp_path, *lines, device="cuda") == (1, {})


def test_more_ranks_than_any_machine_has_are_not_believed(tmp_path):
    assert judged(tmp_path, line("program_ranks", {"ranks": 10**30})) == (1, {})


def test_compare_and_store_have_what_ran_and_not_the_plan(tmp_path):
    ran = {"ranks": 2, "hosts": 2, "devices": ["cuda"]}
    sides = []
    for name, lines in {
        "planned": (),
        "other": (line("program_ranks", ran), line("precision", "bf16")),
    }.items():
        (tmp_path / name).mkdir()
        judged(tmp_path / name, *lines)
        sides.append(judge_folder(tmp_path / name, ruleset_name=None, rcp_folders=[]))
    differ = {one.name: (one.a, one.b) for one in find_differences(*sides)}
    assert differ == {
        "ranks": ("1", "2"),
        "hosts": ("1", "2"),
        "device": ("cpu", "cuda"),
        "precision": ("fp32", "bf16"),
    }
    row = entry_row(sides[1])
    assert [row[name] for name in ("ranks", "nodes", "device", "precision")] == [2, 2, "cuda", "bf16"]


def test_models_are_compared_over_the_ranks_that_ran_and_not_over_those_that_were_planned(tmp_path):
    judged(tmp_path, line("program_ranks", {"ranks": 1}), world_size=4)
    found = judge_folder(tmp_path, ruleset_name=None, rcp_folders=[])
    assert not [one for run in found.verdicts for one in run.findings if one.check == "replicas"]
