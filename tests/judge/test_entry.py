"""From a folder of results to a score: what counts, what is dropped, what invalidates."""

import json
import math
import shutil
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from train_bench.errors import LogError, RequestError, UnknownName
from train_bench.judge.score import failed_runs
from train_bench.judge.tree import judge_folder

GOOD = ["good"] * MINI.runs


def judge(folder, *, ruleset_name=None, rcp=None):
    judged = judge_folder(folder, ruleset_name=ruleset_name, rcp_folders=[rcp or folder / "no_points"])
    json.dumps(judged.as_json(), allow_nan=False)
    return judged


@pytest.fixture
def planned(tmp_path):
    plan(tmp_path)
    return tmp_path


def test_a_good_campaign_is_valid_and_its_score_is_the_olympic_mean(planned):
    score = judge(campaign(planned, GOOD)).score
    assert (score.valid, score.reasons) == (True, ())
    assert score.olympic_minutes == pytest.approx(62 / 60)
    assert score.score_minutes == score.olympic_minutes
    assert score.rcp.verdict == "none"
    assert [run.dropped for run in score.runs] == [True, False, False, False, True]


def test_the_score_says_what_was_planned(planned):
    score = judge(campaign(planned, GOOD)).score
    assert (score.benchmark, score.variant, score.ruleset) == (MINI.name, MINI.name, MINI.ruleset)
    assert (score.launcher, score.world_size, score.seeds) == ("torchrun", 2, "fixed")
    assert len(score.ruleset_digest) == 64


def test_deviation_is_over_all_converged_runs_and_the_interval_is_that_of_the_score(planned):
    score = judge(campaign(planned, GOOD)).score
    times = [(60 + index) / 60 for index in range(MINI.runs)]
    assert score.stdev_minutes == pytest.approx(statistics.stdev(times))
    low, high = score.ci95_minutes
    assert math.sqrt(low * high) == pytest.approx(score.score_minutes)
    assert low < statistics.fmean(times) < high


def test_samples_over_speed_is_the_olympic_time(planned):
    score = judge(campaign(planned, GOOD)).score
    assert score.samples_to_target / score.samples_per_second == pytest.approx(score.olympic_minutes * 60)


@pytest.mark.parametrize("failed", ["not_converged", "diverged", "died_at_once", "died_in_a_line"])
def test_one_run_that_failed_counts_as_the_slowest(failed, planned):
    seconds = [10, 61, 62, 63, 64]
    score = judge(campaign(planned, [failed, *GOOD[1:]], seconds=seconds)).score
    assert (score.valid, score.reasons) == (True, ())
    assert score.runs[0].dropped
    assert score.olympic_minutes == pytest.approx(63 / 60)


def test_two_runs_that_failed_invalidate_the_result(planned):
    score = judge(campaign(planned, ["not_converged", "died_at_once", *GOOD[2:]])).score
    assert not score.valid
    assert score.olympic_minutes is None
    assert score.score_minutes is None
    assert any("did not converge" in reason for reason in score.reasons)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_too_few_runs_are_incomplete(count, planned):
    score = judge(campaign(planned, GOOD[:count])).score
    assert not score.valid
    assert any(reason.startswith("Incomplete") and str(count) in reason for reason in score.reasons)


def test_more_runs_than_the_round_takes_are_no_result(planned):
    score = judge(campaign(planned, [*GOOD, "good"])).score
    assert not score.valid
    assert any("6 runs" in reason for reason in score.reasons)


def declared(folder, sources, seconds):
    """A campaign whose plan declared as many runs as there are, started a minute after each other."""
    jobs = [{"index": index, "seed": 1000 + index} for index in range(len(sources))]
    plan(folder, jobs=jobs)
    campaign(folder, sources, seconds=seconds)
    for index in range(len(sources)):
        shifted(folder / f"result_{index}.txt", 60_000 * index)
    return folder


def shifted(path, milliseconds):
    lines = []
    for text in path.read_text().splitlines():
        line = json.loads(text.removeprefix(":::MLLOG "))
        line["time_ms"] += milliseconds
        lines.append(f":::MLLOG {json.dumps(line)}\n")
    path.write_text("".join(lines))


def test_of_more_runs_that_were_declared_the_median_window_is_the_result(tmp_path):
    """Olympic means of the windows of five: 40, 42 and 44 minutes; the one in the middle counts."""
    seconds = [60 * minutes for minutes in (1, 39, 40, 41, 42, 43, 45)]
    score = judge(declared(tmp_path, ["good"] * 7, seconds)).score
    assert (score.valid, score.reasons) == (True, ())
    assert [run.counted for run in score.runs] == [False, True, True, True, True, True, False]
    assert score.olympic_minutes == pytest.approx(41)


def test_a_window_with_too_many_failures_is_the_slowest(tmp_path):
    sources = ["not_converged", "not_converged", *["good"] * 5]
    score = judge(declared(tmp_path, sources, [60.0] * 7)).score
    assert [run.counted for run in score.runs] == [False, False, *[True] * 5]
    assert score.valid


def test_an_even_number_of_windows_gives_the_slower_one_in_the_middle(tmp_path):
    score = judge(declared(tmp_path, ["good"] * 6, [60, 60, 60, 60, 60, 120])).score
    assert score.olympic_minutes == pytest.approx(1)
    score = judge(declared(tmp_path, ["good"] * 6, [60, 60, 60, 120, 120, 120])).score
    assert score.olympic_minutes == pytest.approx(5 / 3)


def test_the_runs_of_a_reference_point_are_no_result(tmp_path):
    folder = declared(tmp_path, ["good"] * 10, [60.0] * 10)
    plan(folder, jobs=[{"index": index} for index in range(10)], runs_required=10)
    score = judge(folder).score
    assert not score.valid
    assert all(run.counted for run in score.runs)


def test_fewer_runs_than_were_declared_are_incomplete(tmp_path):
    folder = declared(tmp_path, ["good"] * 7, [60.0] * 7)
    (folder / "result_6.txt").unlink()
    score = judge(folder).score
    assert any("6 of 7" in reason for reason in score.reasons)


def test_a_run_that_breaks_a_rule_invalidates_and_is_named(planned):
    score = judge(campaign(planned, [*GOOD[:3], "bad_momentum", "good"])).score
    assert not score.valid
    assert any("result_3.txt" in reason for reason in score.reasons)
    assert not score.runs[3].compliant


def test_a_copied_result_is_found(planned):
    folder = campaign(planned, GOOD)
    shutil.copy(folder / "result_1.txt", folder / "result_4.txt")
    judged = judge(folder)
    assert not judged.score.valid
    assert any(found.check == "duplicate" for found in judged.verdicts[4].findings)


def test_two_empty_logs_are_two_failed_runs(planned):
    score = judge(campaign(planned, ["died_at_once", "died_at_once", *GOOD[2:]])).score
    assert not score.valid
    assert any("2 run(s) did not converge" in reason for reason in score.reasons)


def test_how_a_process_died_is_told(planned):
    folder = campaign(planned, ["died_at_once", *GOOD[1:]])
    ended = folder / "ranks" / "run_0" / "exit.json"
    ended.parent.mkdir(parents=True)
    ended.write_text('{"exit_code": 1, "deaths": ["rank 1 killed by SIGKILL"]}')
    judged = judge(folder)
    assert any("rank 1 killed by SIGKILL" in found.message for found in judged.verdicts[0].findings)
    assert judged.score.valid


def test_the_last_words_of_a_process_end_in_one_full_stop(planned):
    folder = campaign(planned, ["died_at_once", *GOOD[1:]])
    ended = folder / "ranks" / "run_0" / "exit.json"
    ended.parent.mkdir(parents=True)
    ended.write_text('{"exit_code": 1, "deaths": ["rank 0 failed: The data are not there."]}')
    messages = [found.message for found in judge(folder).verdicts[0].findings]
    assert "The run's processes died: rank 0 failed: The data are not there." in messages


def points(folder, values, **fields):
    path = folder / "points" / MINI.ruleset / f"{MINI.reference}.json"
    path.parent.mkdir(parents=True)
    record = {"Benchmark": MINI.name, "BS": 64, "Hyperparams": {}, "Epochs to converge": values} | fields
    path.write_text(json.dumps({"a": record}))
    return folder / "points"


def test_a_score_is_normalised_by_the_reference(planned):
    rcp = points(planned, [2, 3, 3, 3, 3, 3, 3, 3, 3.4, 4])
    score = judge(campaign(planned, GOOD), rcp=rcp).score
    assert score.valid
    assert score.rcp.verdict == "pass"
    assert score.rcp.factor > 1
    assert score.score_minutes == pytest.approx(score.olympic_minutes * score.rcp.factor)


def checks(judged):
    """What was found beside the logs, but that there are no records."""
    return [finding.check for finding in judged.findings if finding.check != "record"]


def test_convergence_slower_than_the_points_allow_is_for_review(planned):
    judged = judge(campaign(planned, GOOD), rcp=points(planned, [2] * 5 + [2.1] * 5))
    assert (judged.score.valid, judged.score.rcp.verdict, judged.score.rcp.slower) == (True, "pass", True)
    (finding,) = [finding for finding in judged.findings if finding.check != "record"]
    assert (finding.check, finding.grade, finding.value) == ("slower", "review", 3)
    assert f"above {judged.score.rcp.upper_bound:.2f}" in finding.message
    assert checks(judge(planned, rcp=points(planned / "as", [2, 3, 3, 3, 3, 3, 3, 3, 3, 4]))) == []


def test_runs_with_the_seeds_of_reference_runs_are_for_review(planned):
    values = [3] * 10
    same = judge(campaign(planned, GOOD), rcp=points(planned, values, Seeds=[7, 1002, 1003, 8]))
    assert checks(same) == ["reference_seeds"]
    assert "2 of the runs have seeds of the reference runs at batch size 64, for example 1002" in (
        same.findings[-1].message
    )
    assert checks(judge(planned, rcp=points(planned / "others", values, Seeds=[7, 8]))) == []


def test_convergence_too_fast_to_be_true_invalidates(planned):
    score = judge(campaign(planned, GOOD), rcp=points(planned, [30] * 9 + [31])).score
    assert not score.valid
    assert any("RCP fail" in reason for reason in score.reasons)


def test_a_foreign_folder_needs_a_ruleset(tmp_path):
    with pytest.raises(RequestError, match="--ruleset"):
        judge(campaign(tmp_path, GOOD))


def test_a_foreign_folder_is_judged_by_the_ruleset_asked_for(tmp_path):
    score = judge(campaign(tmp_path, GOOD), ruleset_name="mini-1.0").score
    assert score.valid
    assert (score.launcher, score.world_size, score.seeds) == (None, None, None)


def test_a_ruleset_that_contradicts_the_plan_is_refused(planned):
    with pytest.raises(RequestError):
        judge(campaign(planned, GOOD), ruleset_name="training-1.1.0")


def test_a_ruleset_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(UnknownName):
        judge(campaign(tmp_path, GOOD), ruleset_name="training-9.9.9")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RequestError):
        judge(tmp_path / "nothing", ruleset_name="mini-1.0")


def test_a_folder_without_results_is_an_error(planned):
    with pytest.raises(LogError):
        judge(planned)


def test_logs_that_name_no_benchmark_are_an_error(tmp_path):
    with pytest.raises(LogError):
        judge(campaign(tmp_path, ["died_at_once"]), ruleset_name="mini-1.0")


@pytest.mark.parametrize(
    "broken", ["{", "[]", '"text"', '{"ruleset": 7}', '{"ruleset": ["mini-1.0"]}', '{"ruleset": "../x"}']
)
def test_a_broken_plan_is_an_error_and_no_crash(broken, tmp_path):
    campaign(tmp_path, GOOD)
    (tmp_path / "plan.json").write_text(broken)
    with pytest.raises((LogError, RequestError)):
        judge(tmp_path)


def test_runs_are_in_the_order_of_their_numbers(planned):
    campaign(planned, GOOD)
    (planned / "result_4.txt").rename(planned / "result_10.txt")
    assert [run.index for run in judge(planned).score.runs] == [0, 1, 2, 3, 10]


def test_judging_twice_says_the_same(planned):
    campaign(planned, [*GOOD[:4], "not_converged"])
    assert judge(planned).as_json() == judge(planned).as_json()


def test_a_violation_of_several_logs_is_said_once_and_names_the_cause(planned):
    sources = [*["bad_momentum"] * 4, "good"]
    score = judge(campaign(planned, sources)).score
    said = [reason for reason in score.reasons if "break the rules" in reason]
    assert len(said) == 1 and said[0].startswith("result_0.txt, result_1.txt and 2 more break the rules: ")
    assert "momentum" in said[0] and "train-bench judge" not in said[0]


def test_in_an_official_round_the_causes_are_counted_apart():
    rules = replace(MINI, strict=False, drop=1)
    records = [SimpleNamespace(index=index) for index in range(4)]
    converged = [False, True, True, True]
    verdicts = [SimpleNamespace(converged=one, compliant=False, findings=()) for one in converged[:3]]
    verdicts.append(SimpleNamespace(converged=True, compliant=True, findings=()))
    assert failed_runs(records, verdicts, rules) == (
        "1 run(s) did not converge (index 0) and 2 run(s) converged but broke the rules (index 1, 2)"
    )
