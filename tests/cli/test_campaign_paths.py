"""Campaigns by number, by `latest` and by pattern, in every verb that takes some."""

import json

import pytest

from tests.command_line import typed
from tests.judge.campaigns import campaign, plan
from train_bench.cli import campaign_paths
from train_bench.core import files
from train_bench.errors import RequestError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with three campaigns, whose names are not in the order of their dates."""
    for day, place in enumerate(("results/c", "b", "pair/a"), start=1):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        campaign(folder, ["good"] * 2, seconds=[60.0 + day, 62.0 + day])
        for file in folder.glob("result_*.txt"):
            file.write_text(file.read_text().replace('"value": 100', f'"value": {day}00'))
        jobs = [{"index": index, "seed": day * 1000 + index} for index in range(2)]
        plan(folder, created=f"2020-11-0{day}T00:00:00+00:00", jobs=jobs)
    logs = sorted((tmp_path / "b").glob("result_*.txt"))
    runs = [{"file": log.name, "sha256": files.digest(log)} for log in logs]
    score = {"valid": False, "score_minutes": 1.5, "runs": runs}
    (tmp_path / "b" / "score.json").write_text(json.dumps(score))
    (tmp_path / "profile").mkdir()
    work = {"created": "2020-12-01T00:00:00+00:00", "benchmark": "resnet_mini", "jobs": [{"work": "profile"}]}
    (tmp_path / "profile" / "plan.json").write_text(json.dumps(work))
    (tmp_path / "results" / "c.html").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "plan.json").write_text("[")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths(*words):
    return [str(path) for word in words for path in campaign_paths.expand(word)]


def test_campaigns_are_numbered_by_date_and_the_last_is_the_latest(here):
    assert paths("1", "2", "3", "latest") == ["results/c", "b", "pair/a", "pair/a"]


def test_a_path_that_exists_is_itself_whatever_it_looks_like(here):
    for name in ("2", "latest", "x*"):
        (here / name).mkdir()
        assert paths(name) == [name]


def test_a_quoted_pattern_is_what_it_matches_in_order(here):
    assert paths("*/[ac]", "nothing") == ["pair/a", "results/c", "nothing"]
    assert paths("results/*", "results/*.html") == ["results/c", "results/c.html"]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("4", "There is no campaign 4 here; they are numbered 1 to 3 (train-bench list campaigns)"),
        ("0", "There is no campaign 0 here"),
        ("x*", "Nothing matches 'x*'"),
    ],
)
def test_what_stands_for_nothing_is_refused(here, word, why):
    answer = typed("judge", word)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert why in answer.stderr


def test_without_a_campaign_a_number_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is none here; give a path" in typed("score", "latest").stderr
    assert "makes the first" in typed("list", "campaigns").stdout


@pytest.mark.parametrize("word", ["\ud800", "a\0b", "loop"])
def test_what_can_be_no_path_is_refused_by_every_verb_that_takes_some(here, word):
    (here / "loop").symlink_to("loop")
    with pytest.raises(RequestError, match="is not a valid path"):
        campaign_paths.expand(word)


def test_a_pattern_of_several_is_no_single_campaign(here):
    with pytest.raises(RequestError, match="matches 2 paths; give one of them"):
        campaign_paths.one("*/[ac]")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"valid": 1, "score_minutes": true}',
        '{"score_minutes": 1e400}',
        f'{{"score_minutes": {"9" * 400}}}',
    ],
)
def test_a_score_of_others_that_is_none_is_left_out(here, text):
    (here / "b" / "score.json").write_text(text)
    answer = typed("list", "campaigns", "--json")
    assert answer.returncode == 0, answer.stderr
    assert [one["score_minutes"] for one in json.loads(answer.stdout)["campaigns"]] == [None] * 3


def test_the_list_has_numbers_dates_and_what_is_known(here):
    listed = json.loads(typed("list", "campaigns", "--json").stdout)["campaigns"]
    assert [(one["number"], one["folder"], one["valid"], one["score_minutes"]) for one in listed] == [
        (1, "results/c", None, None),
        (2, "b", False, 1.5),
        (3, "pair/a", None, None),
    ]
    shown = typed("list", "campaigns", "resnet_mini", "b").stdout
    assert "2020-11-02" in shown and "NOT VALID" in shown and "2020-11-01" not in shown


def test_a_score_of_other_logs_is_not_shown(here):
    log = here / "b" / "result_1.txt"
    kept = log.read_text()
    for change in (log.unlink, lambda: log.write_text(kept + "\n")):
        change()
        listed = json.loads(typed("list", "campaigns", "--json").stdout)["campaigns"]
        assert [(one["valid"], one["score_minutes"]) for one in listed] == [(None, None)] * 3
    log.write_text(kept)
    shown = typed("list", "campaigns").stdout
    assert "1.5000" in shown and "as score.json says" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("judge", "latest", "--json"),
        ("score", "2", "3", "--json"),
        ("score", "*/[ac]", "--csv"),
        ("report", "1", "latest", "--to", "page.html"),
        ("profile", "1", "--json"),
        ("index", "latest", "--store", "store.db"),
        ("compare", "1", "2", "--json"),
        ("export", "1", "--to", "here.zip"),
        ("settle", "2"),
        ("run", "resume=latest"),
        ("verify", "1"),
        ("join", "1"),
        ("forecast", "--from", "1", "--json"),
    ],
)
def test_every_verb_that_takes_a_campaign_takes_its_number(here, words):
    """Whatever it says of the campaign, it has found it."""
    answer = typed(*words)
    said = answer.stdout + answer.stderr
    assert "does not exist" not in said and "is not a campaign" not in said, said
    assert answer.returncode == 0 or answer.stderr.strip(), "an exit code without a sentence"


def test_several_paths_are_judged_as_one_tree_and_none_twice(here):
    judged = json.loads(typed("judge", "results", "results/c", "b", "--json").stdout)
    assert len(judged["entries"]) == 2


@pytest.mark.parametrize(
    "words", [("score", "1", "--csv"), ("score", "1", "2", "--json"), ("review", "1", "--json")]
)
def test_an_exit_code_comes_with_its_sentence(here, words):
    answer = typed(*words)
    assert answer.returncode == 1
    assert "result(s) are incomplete." in answer.stderr


def test_the_list_names_served_weights_which_are_not_judged(here):
    (here / "b_serving").mkdir()
    (here / "b_serving" / "serving.json").write_text("{}")
    assert json.loads(typed("list", "campaigns", "--json").stdout)["served"] == ["b_serving"]
    assert "b_serving, not judged" in typed("list", "campaigns").stdout
    assert "not judged" not in typed("list", "campaigns", "resnet").stdout
