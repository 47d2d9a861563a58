"""A path -> its entries: which folders are entries, what rules hold, what copies there are."""

import shutil

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.errors import LogError, RequestError
from train_bench.judge import tree
from train_bench.judge.tree import judge_tree

GOOD = ["good"] * MINI.runs


def judge(path, ruleset_name="mini-1.0"):
    return judge_tree(path, ruleset_name=ruleset_name, rcp_folders=[path / "no_points"])


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
    assert entry.score.valid is None
    assert entry.score.score_minutes is None


def test_a_single_log_that_did_not_converge_is_not_valid(tmp_path):
    campaign(tmp_path, ["not_converged"])
    assert not judge(tmp_path / "result_0.txt").valid


def test_what_lies_beside_the_results_of_a_campaign_is_no_entry(tmp_path):
    plan(tmp_path)
    campaign(tmp_path, GOOD)
    (tmp_path / "failed").mkdir()
    shutil.copy(tmp_path / "result_0.txt", tmp_path / "failed" / "result_0_1.txt")
    assert len(judge(tmp_path, ruleset_name=None).entries) == 1


@pytest.mark.parametrize("content", ["{}", '{"ruleset": "mini-1.0"}'])
@pytest.mark.parametrize("where", ["", "us", "us/results/big"])
def test_a_plan_above_results_hides_nothing_and_is_told(where, content, submitted):
    (submitted / where / "plan.json").write_text(content)
    judged = judge(submitted)
    assert len(judged.entries) == 2
    (sentence,) = judged.skipped
    assert "has no results next to it" in sentence
    assert judged.as_json()["skipped"] == [sentence]


def test_a_valid_campaign_above_other_results_hides_none_of_them(submitted):
    plan(submitted)
    campaign(submitted, GOOD)
    assert len(judge(submitted).entries) == 3


def test_a_plan_that_is_none_hides_no_other_entry(submitted):
    (submitted / "us/results/big/resnet/plan.json").write_text("{}")
    judged = judge(submitted)
    assert [entry.name for entry in judged.entries] == ["us/small/resnet_mini"]
    assert not judged.valid
    (reason,) = judged.unjudged
    assert "big/resnet/plan.json is not a plan" in reason


def test_how_many_logs_of_repeated_runs_were_passed_over_is_told(tmp_path):
    plan(tmp_path)
    campaign(tmp_path, GOOD)
    (tmp_path / "failed").mkdir()
    for attempt in (1, 2):
        shutil.copy(tmp_path / "result_0.txt", tmp_path / "failed" / f"result_0_{attempt}.txt")
    judged = judge(tmp_path, ruleset_name=None)
    assert len(judged.entries) == 1
    (sentence,) = judged.skipped
    assert "2 log(s) of repeated runs (result_0_1.txt, result_0_2.txt)" in sentence


def test_a_folder_called_failed_hides_no_entry(submitted):
    """Only what a campaign itself puts there is passed over."""
    (submitted / "plan.json").write_text('{"ruleset": "mini-1.0"}')
    (submitted / "us").rename(submitted / "failed")
    assert len(judge(submitted).entries) == 2
    shutil.copy(submitted / "failed/results/big/resnet/result_1.txt", submitted / "failed")
    assert len(judge(submitted).entries) == 3


def test_a_folder_that_is_a_link_to_somewhere_else_is_told(submitted, tmp_path):
    (submitted / "us" / "results" / "big").rename(tmp_path / "elsewhere")
    (submitted / "us" / "results" / "big").symlink_to(tmp_path / "elsewhere")
    judged = judge(submitted)
    assert len(judged.entries) == 1
    (sentence,) = judged.skipped
    assert str(tmp_path / "elsewhere") in sentence


def test_an_entry_with_others_below_it_can_be_judged_by_itself(submitted):
    plan(submitted)
    campaign(submitted, GOOD)
    folder = tree.judge_folder(
        submitted, ruleset_name=None, rcp_folders=[submitted / "no_points"]
    ).location.folder
    assert folder == submitted


def test_a_loop_of_links_ends(submitted):
    (submitted / "us" / "again").symlink_to(submitted, target_is_directory=True)
    assert len(judge(submitted).entries) == 2


@pytest.mark.parametrize("name", ["v1.1", "1.1.0", "training_results_v1.1"])
def test_a_folder_that_is_named_after_a_round_says_the_rules(name, tmp_path):
    folder = tmp_path / name / "us" / "results" / "big" / "resnet"
    folder.mkdir(parents=True)
    campaign(folder, GOOD)
    (entry,) = judge(tmp_path, ruleset_name=None).entries
    assert entry.score.ruleset == "training-1.1.0"


def test_a_short_name_of_a_round_is_enough(tmp_path):
    folder = tmp_path / "us" / "results" / "big" / "resnet"
    folder.mkdir(parents=True)
    campaign(folder, GOOD)
    assert judge(folder, ruleset_name="2.0.0").entries[0].score.ruleset == "training-2.0.0"


def test_without_any_word_on_the_rules_the_sentence_names_the_option(tmp_path):
    with pytest.raises(RequestError, match="--ruleset"):
        judge(campaign(tmp_path, GOOD), ruleset_name=None)


def test_an_empty_tree_is_an_error(tmp_path):
    with pytest.raises(LogError, match="no result"):
        judge(tmp_path)


def test_a_log_that_another_entry_has_too_is_for_review(submitted):
    shutil.copy(
        submitted / "us/results/big/resnet/result_1.txt", submitted / "us/results/small/resnet/result_1.txt"
    )
    big, small = judge(submitted).entries
    assert not any(verdict.findings for verdict in big.verdicts)
    findings = [finding for verdict in small.verdicts for finding in verdict.findings]
    assert [(finding.check, finding.grade) for finding in findings] == [("duplicate", "review")]
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


def test_times_of_another_entry_in_logs_that_differ_are_for_review(submitted):
    """The logs have seeds of their own, and the times of the other system's."""
    for index in range(MINI.runs):
        log = submitted / f"us/results/small/resnet/result_{index}.txt"
        copied = (submitted / f"us/results/big/resnet/result_{index}.txt").read_text()
        log.write_text(copied.replace('"key": "seed", "value": ', '"key": "seed", "value": 77'))
    _, small = judge(submitted).entries
    findings = [finding for verdict in small.verdicts for finding in verdict.findings]
    assert [(finding.check, finding.grade) for finding in findings] == [("same_times", "review")] * MINI.runs
    assert "have the same times, to the millisecond, as those of" in findings[0].message
    assert "us/results/big/resnet/result_0.txt of another entry" in findings[0].message


@pytest.mark.parametrize(("below", "grade"), [("us/results/big/resnet", "breaks"), ("mine", "review")])
def test_a_plan_of_another_round_than_its_folder_is_told(tmp_path, below, grade):
    folder = tmp_path / "v1.1" / below
    folder.mkdir(parents=True)
    plan(folder)
    (entry,) = judge(campaign(folder, GOOD), ruleset_name=None).entries
    (of_plan,) = [finding for finding in entry.findings if finding.check == "round"]
    assert of_plan.grade == grade
    assert "has the ruleset mini-1.0, but lies in a folder of training-1.1.0" in of_plan.message
    assert entry.score.valid == (grade == "review")
