"""What lies beside the logs: the description of the system, scaling.json."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign
from train_bench.judge.tree import judge_folder


@pytest.fixture
def submitted(tmp_path):
    folder = tmp_path / "org" / "results" / "box" / "resnet"
    folder.mkdir(parents=True)
    campaign(folder, ["good"] * MINI.runs)
    (tmp_path / "org" / "systems").mkdir()
    describe(tmp_path)
    return tmp_path


def describe(root, **changes):
    described = {"submitter": "Example", "division": "closed", "status": "research"} | changes
    (root / "org" / "systems" / "box.json").write_text(json.dumps(described))


def judge(root):
    return judge_folder(
        root / "org" / "results" / "box" / "resnet", asked="mini-1.0", rcp_folder=root / "none"
    )


def checks(judged):
    return [finding.check for finding in judged.findings]


def test_a_description_that_says_what_the_logs_say_has_no_finding(submitted):
    assert checks(judge(submitted)) == []


@pytest.mark.parametrize(
    "changes", [{"submitter": "Somebody Else"}, {"division": "open"}, {"status": "Available cloud"}]
)
def test_a_description_that_contradicts_the_logs_is_for_review(changes, submitted):
    describe(submitted, **changes)
    judged = judge(submitted)
    assert checks(judged) == ["system"] * len(changes)
    assert judged.score.valid


@pytest.mark.parametrize("status", ["research", "Research, Development, or Internal (RDI)"])
def test_a_status_has_two_spellings(status, submitted):
    describe(submitted, status=status)
    assert checks(judge(submitted)) == []


@pytest.mark.parametrize("broken", ["", "{", "[]", "7", "[" * 100_000])
def test_a_broken_description_is_a_finding(broken, submitted):
    (submitted / "org" / "systems" / "box.json").write_text(broken)
    assert checks(judge(submitted)) == ["system"]


def test_the_division_is_that_of_the_description_before_that_of_the_logs(submitted):
    describe(submitted, division="Open")
    assert judge(submitted).score.division == "open"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"scaling_factor": 1.0}', []),
        ('{"scaling_factor": 1.02}', ["scaling"]),
        ('{"scaling_factor": "x"}', ["scaling"]),
        ('{"scaling_factor": true}', ["scaling"]),
        ('{"scaling_factor": NaN}', ["scaling"]),
        ('{"scaling_factor": 1' + "0" * 400 + "}", ["scaling"]),
        ("{}", ["scaling"]),
        ("[", ["scaling"]),
        ("[" * 100_000, ["scaling"]),
    ],
    ids=range(9),
)
def test_a_scaling_that_does_not_follow_from_the_logs_is_for_review(content, expected, submitted):
    (submitted / "org" / "results" / "box" / "resnet" / "scaling.json").write_text(content)
    judged = judge(submitted)
    assert checks(judged) == expected
    json.dumps(judged.as_json(), allow_nan=False)
