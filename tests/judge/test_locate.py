"""Folders as others name them: pruned results, numbers that collide, rounds that are not known."""

import os

import pytest

from tests.judge.campaigns import log_text
from train_bench.cli.program import command
from train_bench.errors import LogError, NoLogs, RequestError
from train_bench.judge import locate
from train_bench.judge.locate import find, in_folder, round_of
from train_bench.judge.tree import judge_folder
from train_bench.rules import ruleset


def write(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(names):
        (folder / name).write_text(log_text("good", index=index))
    return folder


def test_pruned_results_are_skipped_unless_they_are_asked_for(tmp_path):
    folder = write(tmp_path / "entry", ["result_0.txt"])
    pruned = write(folder / "pruned_results", ["result_1.txt", "result_2.txt"])
    found = find(tmp_path, "mini-1.0")
    assert [one.folder for one in found.locations] == [folder]
    assert "2 log(s)" in found.skipped[0]
    assert [one.folder for one in find(pruned, "mini-1.0").locations] == [pruned]
    assert in_folder(pruned, "mini-1.0") is not None


@pytest.mark.parametrize("hidden", [".ipynb_checkpoints", "__MACOSX", ".snapshot/daily"])
def test_copies_in_hidden_folders_are_no_entries_and_are_named(tmp_path, hidden):
    folder = write(tmp_path / "entry", ["result_0.txt"])
    copies = write(folder / hidden, ["result_0-checkpoint.txt", "._result_1.txt"])
    found = find(tmp_path, "mini-1.0")
    assert [one.folder for one in found.locations] == [folder]
    assert found.skipped == (f"{folder / hidden.split('/')[0]} is hidden; its 1 log(s) are not an entry.",)
    assert [one.folder for one in find(copies, "mini-1.0").locations] == [copies]


@pytest.mark.parametrize("control", [".git", ".hg", ".svn"])
def test_folders_of_version_control_are_not_searched(tmp_path, control, monkeypatch):
    folder = write(tmp_path / "entry", ["result_0.txt"])
    write(tmp_path / control / "objects", ["result_0.txt"])
    walked, walk = [], os.walk
    monkeypatch.setattr(os, "walk", lambda top, **options: walked.append(top) or walk(top, **options))
    found = find(tmp_path, "mini-1.0")
    assert [one.folder for one in found.locations] == [folder] and found.skipped == ()
    assert walked == [tmp_path]


def test_files_of_version_control_are_not_called_logs(tmp_path):
    write(tmp_path / ".git" / "objects", ["run_1.log"])
    with pytest.raises(NoLogs, match=r"has no result_\*\.txt yet\."):
        find(tmp_path, "mini-1.0")


@pytest.mark.parametrize("name", ["v5.1.tar.gz", "round.ZIP", "results.7z", "result_0.txt.gz"])
def test_an_archive_is_called_packed_before_its_round_is_asked_for(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(RequestError, match=f"{name} is packed; unpack it"):
        find(tmp_path / name, None)
    with pytest.raises(LogError, match=rf"no result_\*\.txt; {name} may "):
        find(tmp_path, "mini-1.0")


def test_folders_in_the_names_of_files_are_told_from_other_names(tmp_path):
    write(tmp_path, [rf"v5.1\Org\results\box\resnet\result_{index}.txt" for index in range(2)])
    with pytest.raises(LogError, match=r"result_0\.txt and 1 more have folders in their names, written with"):
        find(tmp_path, "mini-1.0")


def test_the_copy_of_a_log_is_the_one_that_is_called_a_copy(tmp_path):
    folder = write(tmp_path / "logs", ["result_0.txt"])
    (folder / "result_0 - Copy.txt").write_text((folder / "result_0.txt").read_text())
    judged = judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[tmp_path])
    (said,) = [one for run in judged.verdicts for one in run.findings if one.check == "duplicate"]
    assert said.file.endswith("Copy.txt") and "copy of result_0.txt" in said.message


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ([f"result_5027-{at}_1.txt" for at in (0, 1, 2, 10)], [0, 1, 2, 3]),
        (["result_a.txt", "result_b.txt"], [0, 1]),
        (["result_3.txt", "result_03.txt"], [0, 1]),
        (["result_1.txt", "result_7.txt"], [1, 7]),
    ],
)
def test_runs_have_numbers_of_their_own(tmp_path, names, order):
    judged = judge_folder(write(tmp_path / "logs", names), ruleset_name="mini-1.0", rcp_folders=[tmp_path])
    assert [run.index for run in judged.score.runs] == order
    assert sorted(run.file for run in judged.score.runs) == sorted(names)


@pytest.mark.parametrize("name", ["v0.7", "training_results_v0.6", "v9.9", "hpc_results_v0.7"])
def test_a_folder_of_an_unknown_round_is_named_with_the_known_ones(tmp_path, name):
    write(tmp_path / name / "Example" / "results" / "box" / "resnet", ["result_0.txt"])
    with pytest.raises(
        RequestError, match=rf"{name} names a round whose rules are not known.*1\.0\.0 to 6\.1\.0"
    ):
        find(tmp_path, None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *((name, "training-1.1.0") for name in ("1.1.0", "1.1", "v1.1", "V1.1.0", "training_1.1.0")),
        *((name, "hpc-2.0.0") for name in ("hpc-2.0", "HPC_Results_v2.0", "hpc_2.0.0")),
        ("mini-1.0", "mini-1.0"),
    ],
)
def test_a_round_is_known_by_the_names_that_people_and_folders_give_it(tmp_path, name, meant):
    assert ruleset.full_name(name) == meant
    if meant != "mini-1.0":
        assert round_of(tmp_path / name / "Example") == meant


@pytest.mark.parametrize("name", ["0.7.0", "training-0.6.0", "hpc-0.7.0", "9.9"])
def test_an_unknown_round_is_not_taken_for_a_misspelt_one(name):
    with pytest.raises(RequestError) as raised:
        ruleset.full_name(name)
    assert "Did you mean" not in str(raised.value)
    assert "HPC rounds 1.0.0 to 3.0.0 are known" in str(raised.value)


def test_a_raw_log_and_its_cleaned_twin_are_named_as_one_run(tmp_path):
    folder = write(tmp_path / "logs", [f"result_{at}.txt" for at in range(5)])
    for at in range(5):
        (folder / f"result_raw_{at}.txt").write_text("epoch 1\n" + log_text("good", index=at))
    judged = judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[tmp_path])
    (found,) = [one for one in judged.findings if one.check == "twins"]
    assert "5 run(s) have several logs, for example result_0.txt and result_raw_0.txt" in found.message
    assert [run.index for run in judged.score.runs] == list(range(10))


def test_different_runs_are_no_twins(tmp_path):
    folder = write(tmp_path / "logs", [f"result_{at}.txt" for at in range(5)])
    judged = judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[tmp_path])
    assert not [one for one in judged.findings if one.check in ("twins", "bypass", "format")]


MLLOG_LINE = (
    ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1}\n'
)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "slurm-1234.out",
            "srun: job 7\n" + MLLOG_LINE,
            r"slurm-1234.out has :::MLLOG lines: judge one by itself",
        ),
        ("run_1.log", "x" * 10**6 + MLLOG_LINE, r"run_1.log has :::MLLOG lines"),
        ("train.err", MLLOG_LINE, r"train.err has :::MLLOG lines"),
        (
            "run_1.log",
            ":::MLPv0.5.0 resnet 1541 (a.py:1) run_start",
            r"run_1.log has :::MLP lines.*before 1.0",
        ),
        (
            "mlperf_log_summary.txt",
            "=====\nMLPerf Results Summary\n=====",
            r"mlperf_log_detail.txt beside it",
        ),
    ],
)
def test_a_folder_without_result_files_is_looked_into(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(NoLogs, match=said):
        find(tmp_path, "training-6.0.0")


def test_a_folder_with_other_texts_has_no_logs_yet(tmp_path):
    (tmp_path / "notes.out").write_text("nothing\n")
    (tmp_path / "README.md").write_text(MLLOG_LINE)
    with pytest.raises(NoLogs, match=r"no result_.* yet"):
        find(tmp_path, "training-6.0.0")


def test_judging_looks_for_the_entries_of_a_path_once(tmp_path, monkeypatch):
    write(tmp_path, ["result_0.txt", "result_1.txt"])
    plan_of, looked = locate._plan, []
    monkeypatch.setattr(locate, "_plan", lambda folder: looked.append(folder) or plan_of(folder))
    command("judge")([str(tmp_path), "--ruleset", "mini-1.0"])
    assert looked == [tmp_path]
