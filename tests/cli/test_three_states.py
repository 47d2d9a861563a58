"""Valid, not valid or incomplete: every table, page and JSON says the same of a campaign."""

import json
import re

import pytest

from tests.command_line import typed
from tests.judge import campaigns
from tests.store.test_store import campaign, index
from train_bench.cli.commands import web
from train_bench.plan import discover
from train_bench.report.page import write

STATES = {"whole": "valid", "broken": "not valid", "begun": "incomplete"}
MARK = {"valid": "good", "not valid": "bad", "incomplete": "open"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A valid campaign, one with two runs that failed, one that lacks runs, with their scores and a store."""
    root = tmp_path_factory.mktemp("states")
    for number, name in enumerate(STATES, start=1):
        folder = campaign(root / name, created=f"2020-11-2{number}T00:00:00+00:00")
        campaigns.at_another_time(folder, number)
    for run in (1, 2):
        (root / "broken" / f"result_{run}.txt").write_text(campaigns.log_text("not_converged", index=run))
    for run in (2, 3, 4):
        (root / "begun" / f"result_{run}.txt").unlink()
    index(root.parent / "states.db", root)
    with pytest.MonkeyPatch.context() as patch:  # the logs are those of no reference
        patch.setattr(discover, "rcp_folders", lambda: (root / "nowhere",))
        yield root


def scores(place):
    judged = json.loads(typed("score", str(place), "--json").stdout)["entries"]
    return {entry["folder"].rpartition("/")[2]: entry for entry in judged}


def test_json_of_score_review_compare_and_history_agree(place):
    assert {name: score["state"] for name, score in scores(place).items()} == STATES
    reviewed = json.loads(typed("review", str(place), "--json").stdout)["entries"]
    assert {entry["folder"].rpartition("/")[2]: entry["state"] for entry in reviewed} == STATES
    told = json.loads(typed("history", "--json", "--store", str(place.parent / "states.db")).stdout)
    points = [point for line in told["lines"] for point in line["points"]]
    assert {point["folder"].rpartition("/")[2]: point["state"] for point in points} == STATES
    table = json.loads(typed("compare", *(str(place / name) for name in STATES), "--json").stdout)
    assert [row["state"] for row in table["campaigns"]] == list(STATES.values())


@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_judge_ends_with_the_state_and_its_exit_code(name, state, place):
    answer = typed("judge", str(place / name))
    assert re.search(rf"^{state.upper()}\b", answer.stdout, re.MULTILINE)
    assert answer.returncode == (0 if state == "valid" else 1)
    assert ("NOT VALID" in answer.stdout) is (state == "not valid")


def test_the_reason_stands_behind_incomplete_once(place):
    assert "\nINCOMPLETE: 2 of 5 runs.\n" in typed("judge", str(place / "begun")).stdout


def test_tables_of_many_name_the_state_and_the_reasons_of_what_is_not_valid(place):
    for verb in ("score", "review"):
        shown = " ".join(typed(verb, str(place)).stdout.split())
        assert "is incomplete: 2 of 5 runs." in shown
        assert "is not valid: 2 run(s) did not converge" in shown
    judged = typed("judge", str(place))
    assert judged.stdout.endswith("1 of 3 entries are valid, 1 incomplete.\n")
    said = typed("judge", str(place), "--json").stderr
    assert "1 of 3 result(s) are not valid, and 1 of 3 result(s) are incomplete." in said
    compared = typed("compare", *(str(place / name) for name in STATES)).stdout
    assert "\nNot valid: B; " in compared and "\nIncomplete: C; " in compared


def test_the_list_of_campaigns_has_the_states_of_scores_and_of_missing_runs(place, monkeypatch):
    monkeypatch.chdir(place)
    bare = {
        one["folder"]: one["state"]
        for one in json.loads(typed("list", "campaigns", "--json").stdout)["campaigns"]
    }
    assert bare == {"whole": None, "broken": None, "begun": "incomplete"}
    for name, score in scores(place).items():
        (place / name / "score.json").write_text(json.dumps(score))
    listed = json.loads(typed("list", "campaigns", "--json").stdout)["campaigns"]
    assert {one["folder"]: one["state"] for one in listed} == STATES
    shown = typed("list", "campaigns").stdout
    assert "NOT VALID" in shown and "incomplete" in shown


def test_pages_mark_incomplete_with_neither_the_colour_of_valid_nor_of_not_valid(place):
    def badges(page):
        return set(re.findall(r'<span class="badge (\w+)">([^<]*)</span>', page))

    expected = {(MARK[state], state.upper()) for state in STATES.values()}
    pages = web.Pages(place, place.parent / "nowhere.db", None)
    assert badges(pages("/review")) == expected
    beside = sorted(re.findall(r"/campaign/([0-9a-f]{16})", pages("/")))
    assert badges(pages("/beside/" + "/".join(beside))) == expected
    of_store = web.Pages(None, place.parent / "states.db", None)
    assert badges(of_store("/")) == expected
    one = next(page for name in beside if "INCOMPLETE" in (page := pages(f"/campaign/{name}")))
    assert '<div class="verdict incomplete">' in one
    script = (write.HERE / "history.js").read_text()
    assert 'point.state === "incomplete" ? "open" : "bad"' in script
