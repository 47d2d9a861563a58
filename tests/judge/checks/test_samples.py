"""Evaluation on training data, and ranks that do not share an epoch, are found in a log."""

import json

import pytest

from tests.judge.campaigns import LOGS, MINI, campaign, plan
from train_bench.judge.compliance import judge_run
from train_bench.judge.entry import judge_entry
from train_bench.judge.locate import find
from train_bench.logs.record import read_record
from train_bench.plan import discover
from train_bench.rules import ruleset

OFFICIAL = ruleset.load("training-1.1.0").benchmark("resnet")
DATA, ORDER = "data_fingerprint", "order_fingerprint"
SOME = {"compared": 1024}


def log_with(folder, **values):
    """The good log with other values of lines, of which some are changes of what is there, or without those whose
    value is `...`."""
    lines = []
    for text in (LOGS / "good.txt").read_text().splitlines():
        line = json.loads(text.partition(":::MLLOG ")[2])
        value = values.get(line["key"], line["value"])
        if isinstance(value, dict) and isinstance(line["value"], dict):
            value = line["value"] | value
        if value is not ...:
            lines.append(f":::MLLOG {json.dumps(line | {'value': value})}")
    path = folder / "result_0.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def findings_of(path, rules=MINI, world_size=2):
    """Findings about samples: (kind, grade, message)."""
    record, read = read_record(path, rules)
    verdict = judge_run(record, read, rules, world_size=world_size)
    return [
        (item.check, item.grade, item.message) for item in verdict.findings if item.check in (DATA, ORDER)
    ]


def sets(**changes):
    """The sets of the good log, with changes of either."""
    train = {"samples": 897, "left_out": 0, "compared": 897} | changes.get("train", {})
    return {
        "train": train,
        "evaluation": {"samples": 900, "left_out": 0, "compared": 900} | changes.get("evaluation", {}),
    }


def test_the_good_log_has_nothing_to_find(tmp_path):
    assert findings_of(log_with(tmp_path)) == []


@pytest.mark.parametrize(
    "value",
    [
        {"files_in_common": 1},
        {"samples_in_common": 900},
        {"samples_in_common": 19},
        {"samples_in_common": 30, **sets(train=SOME | {"samples": 897})},
    ],
)
def test_an_evaluation_that_reads_training_data_is_no_result(tmp_path, value):
    ((check, grade, message),) = findings_of(log_with(tmp_path, data_fingerprint=value))
    assert (check, grade) == (DATA, "breaks") and "data overlap" in message


@pytest.mark.parametrize("common", [1, 18])
def test_a_few_samples_that_repeat_by_themselves_are_no_finding(tmp_path, common):
    assert findings_of(log_with(tmp_path, data_fingerprint={"samples_in_common": common})) == []


@pytest.mark.parametrize(("common", "kinds"), [(3, 0), (4, 1), (1024, 1)])
def test_of_large_sets_a_part_is_compared_and_chance_is_left_out(tmp_path, common, kinds):
    parts = sets(train={"samples": 4_000_000, "compared": 1024}, evaluation={"compared": 100})
    messages = findings_of(
        log_with(tmp_path, train_samples=4_000_000, data_fingerprint=parts | {"samples_in_common": common})
    )
    assert sum("data overlap" in message for _, _, message in messages) == kinds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": {"samples": 450, "compared": 450}}, "but eval_samples is 900"),
        ({"train": {"samples": 896}}, "but train_samples is 897"),
        ({"train": {"samples": 897 + 64}}, "but train_samples is 897"),
    ],
)
def test_sizes_other_than_stated_are_no_result(tmp_path, changes, message):
    findings = findings_of(log_with(tmp_path, data_fingerprint=sets(**changes)))
    assert {grade for _, grade, _ in findings} == {"breaks"}
    assert any(message in text for _, _, text in findings)


@pytest.mark.parametrize(
    ("evaluation", "train"),
    [({"samples": 850, "left_out": 50, "compared": 850}, {}), ({}, {"samples": 960, "compared": 960})],
)
def test_images_without_objects_and_what_fills_no_batch_count_as_stated(tmp_path, evaluation, train):
    evaluated = {"evaluated": evaluation.get("samples", 900)}
    path = log_with(
        tmp_path, data_fingerprint=sets(evaluation=evaluation, train=train), order_fingerprint=evaluated
    )
    assert findings_of(path) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"repeated": 448}, "448 of the first"),
        ({"evaluated": 450}, "An evaluation took 450 samples, but the evaluation set has 900"),
        ({"evaluated_again": 450}, "The last evaluation took 450 samples twice"),
        ({"trained": 128}, "Training took 128 samples"),
        (
            {"contradicting": 2},
            "2 rank(s) trained on other samples than the rest of their tensor-parallel group",
        ),
    ],
)
def test_ranks_that_do_not_share_the_samples_are_no_result(tmp_path, value, message):
    ((check, grade, text),) = findings_of(log_with(tmp_path, order_fingerprint=value))
    assert (check, grade) == (ORDER, "breaks") and message in text


def test_the_same_shard_on_all_ranks_invalidates_a_campaign(tmp_path):
    campaign(tmp_path, ["good"] * 5)
    plan(tmp_path)
    for path in tmp_path.glob("result_*.txt"):
        path.write_text(path.read_text().replace('"repeated": 0', '"repeated": 448'))
    (location,) = find(tmp_path, None).locations
    score = judge_entry(location, rcp_folders=discover.rcp_folders()).score
    assert not score.valid


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((DATA, value) for value in (7, [], "none", {"train": 1}, {"samples_in_common": "many"})),
        (
            DATA,
            {"train": {"samples": 1, "compared": 10**400}, "evaluation": {"samples": 1, "compared": 10**400}},
        ),
        *((ORDER, value) for value in (7, [], "none", {"repeated": -1}, {"compared": True}, {"ranks": None})),
        (ORDER, {"evaluated": 10**400}),
    ],
)
def test_a_line_that_says_something_else_is_a_finding(tmp_path, key, value):
    findings = findings_of(log_with(tmp_path, **{key: value}))
    assert (key, "breaks") in {item[:2] for item in findings}


def test_a_campaign_without_the_lines_is_no_result(tmp_path):
    path = log_with(tmp_path, data_fingerprint=..., order_fingerprint=...)
    assert [item[:2] for item in findings_of(path)] == [(DATA, "breaks"), (ORDER, "slow")]
    assert [item[:2] for item in findings_of(log_with(tmp_path, data_fingerprint=None))] == [(DATA, "breaks")]


def test_a_log_that_came_alone_or_of_an_official_round_owes_no_lines(tmp_path):
    path = log_with(tmp_path, data_fingerprint=..., order_fingerprint=...)
    assert findings_of(path, world_size=None) == []
    assert findings_of(path, OFFICIAL) == []


def test_in_an_official_round_the_same_data_are_for_review(tmp_path):
    path = log_with(tmp_path, data_fingerprint={"files_in_common": 1})
    assert (DATA, "review") in [item[:2] for item in findings_of(path, OFFICIAL)]


def test_a_benchmark_without_sets_owes_no_fingerprint_of_data(tmp_path):
    path = log_with(tmp_path, train_samples=..., eval_samples=..., data_fingerprint=None)
    assert findings_of(path) == []
