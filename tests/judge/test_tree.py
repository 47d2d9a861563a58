"""A path -> its entries: which folders are entries, what rules hold, what copies there are."""

import shutil

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.errors import LogError, RequestError
from train_bench.judge import tree
from train_bench.judge.tree import judge_tree

GOOD = ["good"] * MINI.runs


def judge(path, asked="mini-1.0"):
    return judge_tree(path, asked=asked, rcp_folder=path / "no_points")


@pytest.fixture
def submitted(tmp_path):
    """Two systems of one submitter, laid out as submissions are."""
    for system in ("big", "small"):
        folder = tmp_path / "round" / "us" / "results" / system / "resnet"
        folder.mkdir(parents=True)
        campaign(folder, GOOD, seconds=[60 + index + (system == "big") for index in range(MINI.runs)])
    return tmp_path / "round"


@pytest.mark.parametrize(
    ("below", "entries"), [("", 2), ("us", 2), ("us/results/big", 1), ("us/results/big/resnet", 1)]
)
def test_any_folder_above_results_is_a_tree(below, entries, submitted):
    judged = judge(submitted / below)
    assert len(judged.entries) == entries
    assert judged.valid


def test_the_folders_name_submitter_and_system(submitted):
    names = [entry.name for entry in judge(submitted).entries]
    assert names == ["us/big/resnet_mini", "us/small/resnet_mini"]


def test_a_single_log_is_judged_by_itself(submitted):
    (entry,) = judge(submitted / "us/results/big/resnet/result_2.txt").entries
    assert [run.file for run in entry.score.runs] == ["result_2.txt"]
    assert entry.score.valid
    assert entry.score.score_minutes is None


def test_a_single_log_that_did_not_converge_is_not_valid(tmp_path):
    campaign(tmp_path, ["not_converged"])
    assert not judge(tmp_path / "result_0.txt").valid


def test_what_lies_beside_the_results_of_a_campaign_is_no_entry(tmp_path):
    plan(tmp_path)
    campaign(tmp_path, GOOD)
    (tmp_path / "failed").mkdir()
    shutil.copy(tmp_path / "result_0.txt", tmp_path / "failed" / "result_0.txt")
    assert len(judge(tmp_path, asked=None).entries) == 1


def test_a_loop_of_links_ends(submitted):
    (submitted / "us" / "again").symlink_to(submitted, target_is_directory=True)
    assert len(judge(submitted).entries) == 2


@pytest.mark.parametrize("name", ["v1.1", "1.1.0", "training_results_v1.1"])
def test_a_folder_that_is_named_after_a_round_says_the_rules(name, tmp_path):
    folder = tmp_path / name / "us" / "results" / "big" / "resnet"
    folder.mkdir(parents=True)
    campaign(folder, GOOD)
    (entry,) = judge(tmp_path, asked=None).entries
    assert entry.score.ruleset == "training-1.1.0"


def test_a_short_name_of_a_round_is_enough(tmp_path):
    folder = tmp_path / "us" / "results" / "big" / "resnet"
    folder.mkdir(parents=True)
    campaign(folder, GOOD)
    assert judge(folder, asked="2.0.0").entries[0].score.ruleset == "training-2.0.0"


def test_without_any_word_on_the_rules_the_sentence_names_the_option(tmp_path):
    with pytest.raises(RequestError, match="--ruleset"):
        judge(campaign(tmp_path, GOOD), asked=None)


def test_an_empty_tree_is_an_error(tmp_path):
    with pytest.raises(LogError, match="no result"):
        judge(tmp_path)


def test_a_log_that_another_entry_has_too_is_for_review(submitted):
    shutil.copy(
        submitted / "us/results/big/resnet/result_1.txt", submitted / "us/results/small/resnet/result_1.txt"
    )
    big, small = judge(submitted).entries
    assert not any(verdict.findings for verdict in big.verdicts)
    found = [finding for verdict in small.verdicts for finding in verdict.findings]
    assert [(finding.check, finding.grade) for finding in found] == [("duplicate", "review")]
    assert small.score.valid


def test_several_processes_say_the_same_as_one(submitted, monkeypatch):
    alone = judge(submitted).as_json()
    monkeypatch.setattr(tree, "WORTH_PROCESSES", 0)
    assert judge(submitted).as_json() == alone


def test_an_entry_that_cannot_be_judged_hides_no_other(submitted):
    strange = submitted / "us" / "results" / "big" / "strange"
    strange.mkdir()
    (strange / "result_0.txt").write_text("no log at all\n")
    judged = judge(submitted)
    assert len(judged.entries) == 2
    (reason,) = judged.unjudged
    assert "strange" in reason
    assert not judged.valid
    with pytest.raises(LogError, match="strange"):
        judge(strange)
