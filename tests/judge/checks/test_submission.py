"""What lies beside the logs: the description of the system, scaling.json."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign
from train_bench.judge.checks.submission import count_of
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


def judge(root, ruleset="mini-1.0"):
    folder = root / "org" / "results" / "box" / "resnet"
    return judge_folder(folder, ruleset_name=ruleset, rcp_folders=[root / "none"])


def checks(judged):
    """What was found beside the logs, but that no plan lies there."""
    return [finding.check for finding in judged.findings if finding.check != "plan"]


def test_a_description_that_says_what_the_logs_say_has_no_finding(submitted):
    assert checks(judge(submitted)) == []


@pytest.mark.parametrize("changes", [{"submitter": "Somebody Else"}, {"status": "Available cloud"}])
def test_a_description_that_contradicts_the_logs_is_for_review(changes, submitted):
    describe(submitted, **changes)
    judged = judge(submitted)
    assert checks(judged) == ["system"] * len(changes)
    assert judged.score.valid


@pytest.mark.parametrize("status", ["research", "Research, Development, or Internal (RDI)"])
def test_a_status_has_two_spellings(status, submitted):
    describe(submitted, status=status)
    assert checks(judge(submitted)) == []


@pytest.mark.parametrize(
    ("value", "count"), [("8", 8), ("8 (4x2)", 8), (8, 8), ("1.0", 1), (2.0, 2), ("0", 0)]
)
def test_a_number_in_a_description_is_read_with_words_behind_it(value, count, submitted):
    describe(submitted, number_of_nodes="1", accelerators_per_node=value)
    assert checks(judge(submitted)) == []
    assert count_of({"nodes": value}, "nodes") == count


@pytest.mark.parametrize("value", ["eight", "", None, [8], "-8", "1.5"])
def test_a_number_in_a_description_that_cannot_be_read_is_for_review(value, submitted):
    describe(submitted, accelerators_per_node=value)
    judged = judge(submitted)
    assert checks(judged) == ["system"]
    assert any("speeds of accelerators are not compared" in one.message for one in judged.findings)
    assert judged.score.valid


def test_a_field_that_a_description_has_twice_is_for_review(submitted):
    path = submitted / "org" / "systems" / "box.json"
    path.write_text(path.read_text().replace("{", '{"division": "open", ', 1))
    (found,) = [one for one in judge(submitted).findings if one.check == "system"]
    assert "has division twice, of which the last counts" in found.message
    path.write_text(path.read_text().replace('"open"', '"closed"', 1))
    assert checks(judge(submitted)) == []


@pytest.mark.parametrize("broken", ["", "{", "[]", "7", "[" * 100_000])
def test_a_broken_description_is_a_finding(broken, submitted):
    (submitted / "org" / "systems" / "box.json").write_text(broken)
    assert checks(judge(submitted)) == ["system"]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda text: f"{text[:-1]}, }}".encode(), "a comma before } or ]"),
        (lambda text: text.encode("utf-8-sig"), "a byte order mark"),
        (lambda text: text.encode("utf-16"), "the encoding UTF-16"),
        (lambda text: f"{text[:-1]},\n}}".encode("utf-8-sig"), "a byte order mark and a comma before } or ]"),
    ],
)
def test_a_description_that_an_editor_spoilt_is_read_and_told(spoil, fault, submitted):
    path = submitted / "org" / "systems" / "box.json"
    describe(submitted, submitter='Somebody ",]" Else')
    path.write_bytes(spoil(path.read_text()))
    first, second = [one for one in judge(submitted).findings if one.check == "system"]
    assert fault in first.message
    assert second.value == 'Somebody ",]" Else'


def log_as_open(root, *, only="result_*.txt"):
    """Logs that announce the open division and stop far below the target of the closed one."""
    for path in sorted((root / "org" / "results" / "box" / "resnet").glob(only)):
        text = path.read_text().replace('"value": "closed"', '"value": "open"')
        for quality in ("0.7", "0.999"):
            text = text.replace(f'"value": {quality}', '"value": 0.1')
        path.write_text(text)


def test_an_open_entry_has_a_target_of_its_own(submitted):
    describe(submitted, division="Open")
    log_as_open(submitted)
    judged = judge(submitted)
    assert judged.score.division == "open"
    assert all(run.converged for run in judged.score.runs)
    assert checks(judged) == []


@pytest.mark.parametrize("ruleset", ["mini-1.0", "training-1.1.0"])
def test_logs_that_say_open_beside_a_description_that_says_closed_are_held_to_the_closed_target(
    ruleset, submitted
):
    log_as_open(submitted)
    judged = judge(submitted, ruleset)
    assert (judged.score.division, judged.score.valid) == ("closed", False)
    assert not any(run.converged for run in judged.score.runs)
    assert checks(judged) == ["system"]


def test_a_description_that_says_open_beside_closed_logs_frees_them_of_nothing(submitted):
    describe(submitted, division="Open")
    judged = judge(submitted)
    assert (judged.score.division, judged.score.valid) == ("closed", False)
    assert any("The stricter of the two applies" in reason for reason in judged.score.reasons)


def test_in_an_official_round_a_contradiction_about_the_division_is_for_review(submitted):
    describe(submitted, division="Open")
    judged = judge(submitted, "training-1.1.0")
    assert judged.score.division == "closed"
    assert [(found.check, found.grade) for found in judged.findings] == [("system", "review")]


def test_one_log_that_says_open_among_closed_ones_is_held_to_the_closed_target(submitted):
    (submitted / "org" / "systems" / "box.json").unlink()
    log_as_open(submitted, only="result_3.txt")
    judged = judge(submitted)
    assert judged.score.division == "closed"
    assert [run.converged for run in judged.score.runs] == [True, True, True, False, True]
    assert "submission_division" in {found.check for found in judged.verdicts[3].findings}


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
