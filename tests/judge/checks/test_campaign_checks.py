"""How results came about: other rules, points, source or versions than were planned, and runs that were tried again."""

import json

import pytest

from tests.fake_campaigns import verify
from tests.judge.campaigns import MINI, campaign, plan
from train_bench.errors import RequestError
from train_bench.judge import entry, rcp
from train_bench.judge.tree import judge_folder

SOFTWARE = {"sources": "0123", "python": "3.11.7", "packages": {"torch": "2.6.0"}}
RAN = {"revision": "abc", "ruleset_digest": MINI.digest, "software": SOFTWARE}
PLANNED = RAN | {"points_digest": None, "changes": []}


@pytest.fixture
def folder(tmp_path):
    """A valid campaign whose five runs were tried once each."""
    campaign(tmp_path, ["good"] * 5)
    plan(tmp_path, **PLANNED)
    for index in range(5):
        attempt(tmp_path, index)
    return tmp_path


def attempt(folder, run, number=1, outcome="finished", **changes):
    (folder / "attempts").mkdir(exist_ok=True)
    state = {"run": run, "attempt": number, **RAN, "outcome": outcome, "deaths": [], **changes}
    (folder / "attempts" / f"run_{run}_{number}.json").write_text(json.dumps(state))


def judged(folder, changes=None, rcp_folders=None):
    return judge_folder(
        folder, ruleset_name=None, rcp_folders=rcp_folders or [folder / "no_points"], changes=changes
    )


def findings_of(judgement, check):
    listed = [*judgement.findings, *(one for verdict in judgement.verdicts for one in verdict.findings)]
    return [(one.grade, one.message) for one in listed if one.check == check]


def test_a_campaign_that_ran_as_planned_has_nothing_to_tell(folder):
    judgement = judged(folder)
    assert judgement.score.valid, judgement.score.reasons
    assert judgement.score.warnings == ()
    for check in ("software", "attempts", "ruleset_digest", "points_digest", "revision"):
        assert findings_of(judgement, check) == []


def test_rules_that_changed_since_are_named_with_the_target_that_runs_ended_at(folder):
    target = {"thresholds": [{"metric": "top1", "value": 0.9}]}
    jobs = [{"index": index, "seed": 1000 + index, "target": target} for index in range(5)]
    plan(folder, **PLANNED | {"ruleset_digest": "other"}, jobs=jobs)
    for index in range(5):
        attempt(folder, index, ruleset_digest="other")
    judgement = judged(folder)
    ((grade, message),) = findings_of(judgement, "ruleset_digest")
    assert grade == "review"
    assert "changed after the campaign was planned" in message
    assert f"(target {MINI.target}; planned with top1 0.9)" in message
    assert judgement.score.warnings == (message,)


def test_points_that_changed_since_are_named(folder):
    point = {"Benchmark": MINI.name, "BS": 64, "Epochs to converge": [6] * 10}
    (folder / "rcp" / MINI.ruleset).mkdir(parents=True)
    path = folder / "rcp" / MINI.ruleset / f"{MINI.reference}.json"
    path.write_text(json.dumps({"a": point}))
    planned = rcp.digest(rcp.load(MINI, [folder / "rcp"]))
    plan(folder, **PLANNED | {"points_digest": planned})
    assert findings_of(judged(folder, rcp_folders=[folder / "rcp"]), "points_digest") == []
    path.write_text(json.dumps({"a": point | {"Epochs to converge": [5, *[6] * 9]}}))
    judgement = judged(folder, rcp_folders=[folder / "rcp"])
    ((grade, message),) = findings_of(judgement, "points_digest")
    assert grade == "review"
    assert "points of resnet_mini changed after the campaign was planned" in message
    assert judgement.score.points_digest != planned
    assert message in judgement.score.warnings


def test_a_point_has_the_same_digest_whoever_made_it_and_another_with_other_values():
    points = [rcp.Point(batch_size=64, mean=6.0, deviation=1.0, count=10)]
    named = [rcp.Point(batch_size=64, mean=6.0, deviation=1.0, count=10, hyperparameters={"a": 1})]
    other = [rcp.Point(batch_size=64, mean=6.0, deviation=1.0, count=20)]
    assert rcp.digest(points) == rcp.digest(named) != rcp.digest(other)
    assert rcp.digest([]) is None


def test_a_plan_from_changed_files_is_named(folder):
    plan(folder, **PLANNED | {"revision": "abc+changes"})
    ((grade, message),) = findings_of(judged(folder), "revision")
    assert (grade, "abc+changes" in message) == ("review", True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"software": SOFTWARE | {"sources": "9999"}, "revision": "def"},
            r"other source (9999, revision def) than",
        ),
        ({"software": SOFTWARE | {"packages": {"torch": "2.7.0"}}}, "torch 2.7.0 instead of 2.6.0"),
        ({"software": SOFTWARE | {"packages": {}}}, "torch None instead of 2.6.0"),
        ({"software": SOFTWARE | {"python": "3.12.1"}}, "python 3.12.1 instead of 3.11.7"),
        ({"ruleset_digest": "other"}, "other rules than planned"),
        ({"software": 3}, "other source (None"),
    ],
)
def test_a_run_that_ran_with_something_else_is_no_result_in_a_strict_round(folder, change, sentence):
    attempt(folder, 2, **change)
    judgement = judged(folder)
    ((grade, message), *_) = findings_of(judgement, "software")
    assert grade == "breaks"
    assert sentence in message
    assert not judgement.score.valid
    assert "result_2.txt breaks the rules" in " ".join(judgement.score.reasons)


def test_the_number_of_attempts_and_their_ends_are_told(folder):
    attempt(folder, 3, 1, "died", deaths=["rank 0 killed by SIGKILL"])
    attempt(folder, 3, 2, "interrupted")
    attempt(folder, 3, 3, None)
    attempt(folder, 3, 4)
    judgement = judged(folder)
    ((grade, message),) = findings_of(judgement, "attempts")
    assert grade == "review"
    assert message == (
        "This run had 4 attempts: attempt 1 died (rank 0 killed by SIGKILL); attempt 2 was interrupted; "
        "attempt 3 was killed with its campaign. The last one is the result."
    )
    assert judgement.score.valid
    assert judgement.score.warnings == (f"result_3.txt: {message}",)


def test_a_run_that_was_repeated_after_it_had_finished_is_no_result_in_a_strict_round(folder):
    attempt(folder, 1, 2)
    judgement = judged(folder)
    assert (
        "breaks",
        "This run was repeated after it had finished, and its first result was removed.",
    ) in findings_of(judgement, "attempts")
    assert not judgement.score.valid


def test_a_run_of_which_no_attempt_is_recorded_is_no_result_in_a_strict_round(folder):
    (folder / "attempts" / "run_4_1.json").unlink()
    judgement = judged(folder)
    assert [grade for grade, _ in findings_of(judgement, "attempts")] == ["breaks"]
    assert not judgement.score.valid


def test_logs_that_an_older_campaign_put_aside_are_counted(tmp_path):
    plan(campaign(tmp_path, ["good"] * 5))
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "result_2_1.txt").touch()
    judgement = judged(tmp_path)
    assert findings_of(judgement, "attempts") == [
        ("review", "This run had 2 attempts; the earlier logs are in failed/.")
    ]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"outcome": [1], "deaths": 3, "software": {"packages": 3}}', "{" * 9999]
)
def test_a_foreign_record_of_an_attempt_harms_nothing(folder, content):
    (folder / "attempts" / "run_0_1.json").write_text(content)
    attempt(folder, 0, 2)
    assert findings_of(judged(folder), "attempts")[0][0] == "review"


def test_what_is_defined_otherwise_here_is_no_result_though_the_plan_names_no_change(folder):
    config = {"reference": MINI.reference, "benchmark": MINI.name}
    jobs = [{"index": index, "seed": 1000 + index, "config": config} for index in range(5)]
    plan(folder, **PLANNED, jobs=jobs)
    calls = []

    def changes(benchmark, config, ranks):
        calls.append((benchmark, config, ranks))
        return ("benchmark.model.widths=[8,8,8]",)

    score = judged(folder, changes).score
    assert calls[0] == (MINI.name, config, 2)
    assert [reason for reason in score.reasons if "local one: benchmark.model.widths=[8,8,8]." in reason]
    plan(folder, **PLANNED | {"changes": ["benchmark.model.widths=[8,8,8]"]}, jobs=jobs)
    assert judged(folder, changes).score.reasons == (
        "Changed definition of the benchmark: benchmark.model.widths=[8,8,8].",
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"stop_when": "minutes > 30"},
            ["Runs had a time limit, minutes > 30; it stopped none of them."],
        ),
        ({"stop_when": None}, []),
        ({"stop_when": ["minutes > 30"]}, []),
        ("nothing", []),
    ],
)
def test_the_time_limit_of_runs_stands_with_the_score(folder, asked, told):
    plan(folder, **PLANNED, request=asked)
    warnings = judged(folder).score.warnings
    assert [warning for warning in warnings if "time limit" in warning] == told


def test_a_planned_configuration_that_is_none_is_no_result(folder):
    def changes(benchmark, config, ranks):
        raise RequestError("This is not a configuration of it.")

    jobs = [{"index": index, "seed": 1000 + index, "config": {"reference": 3}} for index in range(5)]
    plan(folder, **PLANNED, jobs=jobs)
    assert "not a configuration of it" in " ".join(judged(folder, changes).score.reasons)


def verified(folder, index, **changes):
    verify(folder / f"result_{index}.txt", **changes)


def test_a_verified_quality_is_told_with_the_score_for_the_very_log_that_was_verified(folder):
    verified(folder, 0)
    verified(folder, 1)
    verified(folder, 2, log="that of another run")
    verified(folder, 3, tolerance="wide")
    verified(folder, 4, tolerance=10**400)
    assert judged(folder).score.verified == (
        "quality verified: 2 of 5 runs, by re-evaluating their kept weights (tolerance 1e-05)"
    )


def test_weights_that_have_another_quality_make_no_result_in_a_strict_round(folder):
    assert judged(folder).score.verified is None
    verified(folder, 3, agree=False, found={"top1": 0.5})
    judgement = judged(folder)
    ((grade, message),) = findings_of(judgement, "verified")
    assert grade == "breaks"
    assert "{'top1': 0.5}, the log has {'top1': 0.999} (tolerance 1e-05)." in message
    assert judgement.score.verified is None and not judgement.score.valid


@pytest.mark.parametrize(
    ("changes", "grade"),
    [
        ({"found": {"top1": 0.9989}, "tolerance": 1e-3}, "review"),
        ({"tolerance": 0.5}, "review"),
        ({"found": {"top1": 0.98}, "tolerance": 0.5}, "breaks"),
        ({"found": {"top1": 0.98}, "logged": {"top1": 0.98}}, "breaks"),
        ({"found": {"top1": None}}, "breaks"),
        ({"found": {}, "logged": {}}, "breaks"),
        ({"found": 0.999}, "breaks"),
        ({"found": {"top1": 0.999001}}, None),
    ],
)
def test_a_verification_is_held_to_the_log_and_to_a_bound_of_our_own(folder, changes, grade):
    verified(folder, 3, **changes)
    found = findings_of(judged(folder), "verified")
    assert [one for one, _ in found] == ([grade] if grade else [])
    if grade == "review":
        assert "Verify again without --tolerance." in found[0][1]


def test_a_record_of_an_attempt_that_was_removed_leaves_a_gap(folder):
    attempt(folder, 2, 3)
    (folder / "attempts" / "run_2_1.json").unlink()
    ((grade, message),) = findings_of(judged(folder), "attempts")
    assert grade == "breaks" and "numbered 3; a campaign numbers them from 1" in message


@pytest.mark.parametrize(
    "jobs", [[{}] * 5, [{"index": 0}] * 5, [{"index": index} for index in range(5)], [1, 2]]
)
def test_a_plan_that_names_no_runs_declares_none(folder, jobs):
    plan(folder, **PLANNED, jobs=jobs)
    assert entry._declared_runs(json.loads((folder / "plan.json").read_text())) is None


def test_a_plan_that_names_its_runs_declares_them(folder):
    assert entry._declared_runs(json.loads((folder / "plan.json").read_text())) == 5
