"""One log given by itself: what it can say, and that it is no result."""

import json

import pytest

from tests.command_line import typed
from tests.judge.campaigns import MINI, campaign, plan


@pytest.fixture
def folder(tmp_path):
    plan(tmp_path)
    return campaign(tmp_path, ["good", "not_converged", "bad_momentum", "good", "good"])


def judged(path, verb="judge"):
    done = typed(verb, str(path), "--json")
    entry = json.loads(done.stdout)["entries"][0]
    return done.returncode, entry["valid"], entry["reasons"], entry["score_minutes"]


@pytest.mark.parametrize("verb", ["judge", "score"])
def test_a_log_that_breaks_no_rule_is_neither_valid_nor_invalid(verb, folder):
    sentence = f"this log follows the rules; 1 of {MINI.runs} runs, no score"
    assert judged(folder / "result_0.txt", verb) == (1, None, [sentence], None)
    lines = typed(verb, str(folder / "result_0.txt")).stdout.splitlines()
    assert f"NO RESULT: {sentence}" in lines
    assert not any(line.startswith(("VALID", "NOT VALID")) for line in lines)


def test_a_log_that_missed_the_target_may_be_one_of_the_failed_runs_of_a_result(folder):
    code, valid, (sentence,), _ = judged(folder / "result_1.txt")
    assert (code, valid) == (1, None)
    assert "its run did not converge; 1 of" in sentence


def test_a_log_that_breaks_a_rule_is_not_valid(folder):
    code, valid, reasons, _ = judged(folder / "result_2.txt")
    assert (code, valid) == (1, False)
    assert any("breaks the rules" in reason for reason in reasons)


def test_a_log_by_itself_has_a_page_a_review_and_a_row_in_a_table(folder, tmp_path):
    log = folder / "result_0.txt"
    assert typed("report", str(log), "--to", str(tmp_path / "page.html")).returncode == 1
    page = (tmp_path / "page.html").read_text()
    assert "NO RESULT" in page and "NOT VALID" not in page
    assert "NO RESULT" in typed("review", str(log)).stdout
    assert "no result" in typed("score", str(log), "--markdown").stdout
