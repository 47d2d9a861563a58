"""`settle`: the answer for a campaign that a batch system has carried out."""

import json
from types import SimpleNamespace

import pytest

from tests.command_line import typed
from tests.fake_campaigns import Diary, FakeLauncher, begin, make, run_all
from train_bench.campaign import batch_queue
from train_bench.plan import discover


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a finished campaign, whose runs converge sooner than the reference can."""
    plan = make(f"output={tmp_path_factory.mktemp('settle') / 'campaign'}", "seed=1")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
    return str(plan.jobs[0].folder)


@pytest.fixture
def submitted(finished, monkeypatch):
    """The campaign, as if a queue had carried it out."""
    monkeypatch.setattr(discover, "batch", lambda config: SimpleNamespace(elsewhere=False))
    monkeypatch.setattr(batch_queue, "was_submitted", lambda folder: True)
    monkeypatch.setattr(batch_queue, "settle", lambda batch, folder: None)
    return finished


def test_a_settled_campaign_is_judged_and_scored_and_the_exit_code_is_that_of_the_verdict(submitted):
    answer = typed("settle", submitted)
    assert answer.returncode == 1, answer.stderr
    assert "\nNOT VALID: RCP fail: mean of 8.00 epochs" in answer.stdout


def test_its_json_is_that_of_score_and_nothing_else_is_on_standard_output(submitted, tmp_path):
    to = tmp_path / "answer.json"
    answer = typed("settle", submitted, "--json", "--to", str(to))
    assert json.loads(answer.stdout) == json.loads(to.read_text())
    assert json.loads(answer.stdout) == json.loads(typed("score", submitted, "--json").stdout)
    assert "report: " in answer.stderr


def test_a_page_is_no_place_for_json(submitted, tmp_path):
    answer = typed("settle", submitted, "--to", str(tmp_path / "page.html"))
    assert answer.returncode == 2
    assert "give a name that ends in .json" in answer.stderr
