"""Ranks that drifted apart and machines that were disturbed are found in a log, and in the score."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from tests.judge.campaigns import LOGS, MINI, campaign, plan
from train_bench.judge.checks.ranks import LOST_BOUND
from train_bench.judge.compliance import judge_run
from train_bench.judge.entry import judge_entry
from train_bench.judge.locate import find
from train_bench.logs.record import read_record
from train_bench.plan import discover
from train_bench.report import score_table
from train_bench.rules import ruleset

APART = {
    "ranks": 2,
    "tensors": 62,
    "equal": False,
    "differing": 40,
    "first": "stem.weight",
    "largest_difference": 0.25,
}
DISTURBED = {
    "machines": 1,
    "lost": 0.11,
    "seconds": 60.0,
    "ran": 70.0,
    "waited": 30.0,
    "others": 40.0,
    "steal": 0.1,
    "throttled": 0.0,
}
OFFICIAL = ruleset.load("training-1.1.0").benchmark("resnet")


def log_with(folder, **values):
    """The good log with other values of lines, or without those whose value is `...`."""
    lines = []
    for text in (LOGS / "good.txt").read_text().splitlines():
        line = json.loads(text.partition(":::MLLOG ")[2])
        if values.get(line["key"]) is not ...:
            lines.append(f":::MLLOG {json.dumps(line | {'value': values.get(line['key'], line['value'])})}")
    path = folder / "result_0.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def findings_of(path, rules=MINI, world_size=2):
    """Findings about ranks: (kind, grade, message)."""
    record, read = read_record(path, rules)
    verdict = judge_run(record, read, rules, world_size=world_size)
    ours = [item for item in verdict.findings if item.check in ("replicas", "processor_wait")]
    return [(item.check, item.grade, item.message) for item in ours]


def of_five(folder, **values):
    """The judgement of five runs on two ranks; the first says other `values`."""
    plan(folder)
    campaign(folder, ["good"] * MINI.runs)
    lines = (folder / "result_0.txt").read_text().splitlines()
    kept = []
    for text in lines:
        line = json.loads(text.partition(":::MLLOG ")[2])
        if values.get(line["key"]) is not ...:
            kept.append(f":::MLLOG {json.dumps(line | {'value': values.get(line['key'], line['value'])})}")
    (folder / "result_0.txt").write_text("\n".join(kept) + "\n")
    (location,) = find(folder, None).locations
    return judge_entry(location, rcp_folders=discover.rcp_folders())


def test_ranks_that_agreed_on_a_quiet_machine_are_no_finding(tmp_path):
    assert findings_of(log_with(tmp_path)) == []


def test_ranks_that_drifted_apart_are_no_result_in_a_strict_round(tmp_path):
    ((check, grade, message),) = findings_of(log_with(tmp_path, replicas=APART))
    assert (check, grade) == ("replicas", "breaks")
    assert "40 of 62 tensors differ by up to 0.25, the first is 'stem.weight'." in message
    assert len(message) < 150


def test_ranks_that_drifted_apart_are_for_review_in_an_official_round(tmp_path):
    assert [item[:2] for item in findings_of(log_with(tmp_path, replicas=APART), OFFICIAL)] == [
        ("replicas", "review")
    ]


def test_one_run_whose_ranks_drifted_apart_makes_the_campaign_invalid(tmp_path):
    score = of_five(tmp_path, replicas=APART).score
    assert not score.valid
    assert any("result_0.txt breaks the rules" in reason for reason in score.reasons)


@pytest.mark.parametrize("value", [..., None, "equal", {"equal": "yes", "ranks": 2}, {"ranks": 2}, [], {}])
def test_a_line_that_is_missing_or_says_nothing_is_a_finding(tmp_path, value):
    kinds = {item[0] for item in findings_of(log_with(tmp_path, replicas=value))}
    assert kinds == {"replicas"}


def test_a_run_whose_ranks_were_not_compared_counts_as_the_slowest(tmp_path):
    judgement = of_five(tmp_path, replicas=...)
    assert [run.converged for run in judgement.score.runs] == [False, True, True, True, True]
    ((_, grade, message),) = findings_of(tmp_path / "result_0.txt")
    assert grade == "slow"
    assert "all 2 ranks held the same model" in message


def test_a_comparison_of_fewer_ranks_than_were_planned_is_none(tmp_path):
    assert [item[1] for item in findings_of(log_with(tmp_path), world_size=4)] == ["slow"]


@pytest.mark.parametrize("world_size", [1, None])
def test_a_single_rank_and_a_log_that_came_alone_need_no_comparison(tmp_path, world_size):
    assert findings_of(log_with(tmp_path, replicas=...), world_size=world_size) == []


def test_in_an_official_round_a_comparison_that_is_missing_is_for_review(tmp_path):
    assert [item[:2] for item in findings_of(log_with(tmp_path, replicas=...), OFFICIAL)] == [
        ("replicas", "review")
    ]


def test_a_disturbed_machine_is_for_review_with_its_figures(tmp_path):
    ((check, grade, message),) = findings_of(log_with(tmp_path, processor_wait=DISTURBED))
    assert (check, grade) == ("processor_wait", "review")
    assert "other processes took 11.0 % of the ranks' CPU demand" in message
    assert "others ran 40 s" in message
    assert len(message) < 200


def test_a_run_of_milliseconds_cannot_tell_a_disturbed_machine(tmp_path):
    assert findings_of(log_with(tmp_path, processor_wait=DISTURBED | {"seconds": 0.9})) == []
    assert findings_of(log_with(tmp_path, processor_wait=DISTURBED | {"seconds": None})) != []


def test_a_disturbed_machine_is_shown_in_the_score(tmp_path):
    judgement = of_five(tmp_path, processor_wait=DISTURBED)
    score = judgement.score.as_json()
    assert not any("rules" in reason for reason in score["reasons"])
    assert score["runs"][0]["processor_lost"] == 0.11
    assert score["disturbed"] == (
        "Disturbed: other processes took up to 11.0 % of the ranks' CPU demand (run 0)."
    )
    console = Console(record=True, width=200)
    score_table.show_score(score, console)
    assert score["disturbed"] in console.export_text()
    assert replace(judgement.score, disturbed=None).as_json()["disturbed"] is None


def test_the_bound_itself_is_no_finding(tmp_path):
    assert findings_of(log_with(tmp_path, processor_wait=DISTURBED | {"lost": LOST_BOUND})) == []


@pytest.mark.parametrize("lost", ["much", None, float("inf")])
def test_a_share_that_is_no_number_is_a_finding(tmp_path, lost):
    ((_, _, message),) = findings_of(log_with(tmp_path, processor_wait=DISTURBED | {"lost": lost}))
    assert "an unknown share" in message


@pytest.mark.parametrize("value", [..., None])
def test_a_system_that_does_not_count_is_told(tmp_path, value):
    ((check, grade, message),) = findings_of(log_with(tmp_path, processor_wait=value))
    assert (check, grade) == ("processor_wait", "review")
    assert "does not have the ranks' wait for CPUs" in message


def test_logs_of_others_need_not_tell_how_long_ranks_waited(tmp_path):
    assert findings_of(log_with(tmp_path, processor_wait=...), world_size=None) == []
    assert findings_of(log_with(tmp_path, processor_wait=...), OFFICIAL) == []


def test_a_short_run_that_waited_for_processors_is_unknown_and_one_that_did_not_is_undisturbed(tmp_path):
    """Ticks of 10 ms do not say who ran meanwhile; the wait itself is known to nanoseconds."""
    short = {"machines": 1, "seconds": 0.4, "ran": 0.3, "others": 1.2, "steal": 0.0, "throttled": 0.0}
    waits = {0.1: None, 0.006: 0.004}
    for number, (waited, known) in enumerate(waits.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        judgement = of_five(folder, processor_wait=short | {"waited": waited, "lost": 0.004})
        assert judgement.score.runs[0].processor_lost == known
        assert findings_of(folder / "result_0.txt") == []
