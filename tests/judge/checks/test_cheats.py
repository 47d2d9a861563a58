"""Cheats on a campaign: each copy of it is changed as a cheat would, and the judge says so, or says what cannot be
known."""

import hashlib
import json
import shutil

import pytest

from tests.fake_campaigns import Diary, FakeLauncher, begin, make, run_all
from train_bench import seeds
from train_bench.judge.tree import judge_folder
from train_bench.plan.plan import as_json

TOKEN = ":::MLLOG "


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Five runs, as they are. For runs of a real benchmark, see `tests/cli/test_end_to_end.py`."""
    folder = tmp_path_factory.mktemp("honest") / "campaign"
    plan = make("seed=3", "launcher.threads_per_rank=1", f"output={folder}")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
    return folder


@pytest.fixture
def copied(honest, tmp_path):
    return shutil.copytree(honest, tmp_path / "campaign")


def judge(folder, ruleset_name=None):
    """Without reference points, which are another matter than cheats."""
    return judge_folder(folder, ruleset_name=ruleset_name, rcp_folders=[folder / "no_points"])


def findings_of(judged, *, grade="breaks"):
    """The kinds of what was found in the logs and beside them."""
    of_runs = [finding for verdict in judged.verdicts for finding in verdict.findings]
    return {finding.check for finding in (*of_runs, *judged.findings) if finding.grade == grade}


def edit_plan(folder, change):
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def edit_log(path, change):
    """Every event of a log through `change`, which may return None to take it out."""
    lines = [json.loads(line.partition(TOKEN)[2]) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{TOKEN}{json.dumps(one)}\n" for one in map(change, lines) if one))


def write_records_anew(folder):
    for path in folder.glob("result_*.txt"):
        record = path.with_name(f"record_{path.stem.partition('_')[2]}.json")
        content = json.loads(record.read_text())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        record.write_text(json.dumps(content | {"sha256": digest}))


OF_CHEATS = {"plan", "record", "equal_times", "equal_qualities", "overlap", "speed"}


def test_an_honest_campaign_has_no_finding(honest):
    judged = judge(honest)
    assert judged.score.valid
    for grade in ("breaks", "review"):
        assert not findings_of(judged, grade=grade) & OF_CHEATS


def test_the_plan_of_another_campaign_is_found(copied):
    other = as_json(make("seed=4", "launcher.threads_per_rank=1", "output=/nowhere"))
    (copied / "plan.json").write_text(json.dumps(other, default=str))
    judged = judge(copied)
    assert not judged.score.valid
    assert "plan" in findings_of(judged)


def another_batch_size(plan):
    plan["shared"]["config"]["hyperparameters"]["global_batch_size"] = 128


def other_seeds(plan):
    plan["request"]["seed"] = 4
    for job, seed in zip(plan["jobs"], seeds.from_base(4, 5), strict=True):
        job["seed"] = seed


def another_target(plan):
    plan["shared"]["target"]["thresholds"][0]["value"] = 0.5


def more_ranks(plan):
    plan["world_size"] = 2
    plan["shared"]["nproc_per_node"] = plan["shared"]["launcher_config"]["nproc_per_node"] = 2


def another_launcher(plan):
    plan["launcher"] = plan["shared"]["launcher"] = plan["shared"]["launcher_config"]["name"] = "slurm"


def another_minute(plan):
    plan["created"] = plan["created"].replace("+00:00", "+00:01")


@pytest.mark.parametrize(
    "change",
    [
        *(another_batch_size, other_seeds, another_target, more_ranks, another_launcher),
        another_minute,
    ],
)
def test_a_plan_that_was_edited_afterwards_is_found(change, copied):
    edit_plan(copied, change)
    judged = judge(copied)
    assert not judged.score.valid
    assert "plan" in findings_of(judged)


@pytest.mark.parametrize("anew", [False, True], ids=["records kept", "records written anew"])
@pytest.mark.parametrize(
    ("key", "value"), [("sgd_opt_base_learning_rate", 0.1), ("global_batch_size", 128), ("seed", 5)]
)
def test_a_value_that_was_changed_in_a_log_is_found(key, value, anew, copied):
    edit_log(copied / "result_2.txt", lambda one: one | {"value": value} if one["key"] == key else one)
    if anew:
        write_records_anew(copied)
    judged = judge(copied)
    assert not judged.score.valid
    assert ("plan" if anew else "record") in findings_of(judged)


def test_one_log_five_times_with_the_seeds_of_the_plan_is_found(copied):
    planned = [job["seed"] for job in json.loads((copied / "plan.json").read_text())["jobs"]]
    for index, seed in enumerate(planned):
        path = copied / f"result_{index}.txt"
        path.write_text((copied / "result_0.txt").read_text())
        edit_log(path, lambda one, later=3_600_000 * index: one | {"time_ms": one["time_ms"] + later})
        edit_log(path, lambda one, seed=seed: one | {"value": seed} if one["key"] == "seed" else one)
    write_records_anew(copied)
    judged = judge(copied)
    assert not judged.score.valid
    assert "equal_times" in findings_of(judged)


@pytest.mark.parametrize(("factor", "found"), [(1.0, True), (1e-4, False)])
def test_runs_of_a_moment_may_have_equal_times_by_chance(factor, found, copied):
    """The times of the first run, with the qualities of the second."""
    first, second = copied / "result_0.txt", copied / "result_1.txt"
    for path in (first, second):
        begun = start_of(path)
        edit_log(path, lambda one, begun=begun: faster(one, begun, factor))
    qualities = [line["value"] for line in events(second) if line["key"] == "eval_accuracy"]
    lines = [dict(line) for line in events(first)]
    for line, quality in zip(
        (one for one in lines if one["key"] == "eval_accuracy"), qualities, strict=False
    ):
        line["value"] = min(quality + 0.001, 1.0)
    second.write_text(
        "".join(f"{TOKEN}{json.dumps(one | {'time_ms': one['time_ms'] + 3_600_000})}\n" for one in lines)
    )
    assert ("equal_times" in findings_of(judge(copied))) is found


def faster(one, start, factor):
    return one | {"time_ms": round(start + (one["time_ms"] - start) * factor)}


def events(path):
    return [json.loads(line.partition(TOKEN)[2]) for line in path.read_text().splitlines()]


def start_of(path):
    return next(one["time_ms"] for one in events(path) if one["key"] == "run_start")


@pytest.mark.parametrize("anew", [False, True], ids=["records kept", "records written anew"])
def test_all_times_times_a_hundredth_are_found(anew, copied):
    for path in copied.glob("result_*.txt"):
        edit_log(path, lambda one: faster(one, 0, 0.01))
    if anew:
        write_records_anew(copied)
    judged = judge(copied)
    assert not judged.score.valid
    assert ("plan" if anew else "record") in findings_of(judged)


def test_one_run_that_was_made_faster_is_found_by_its_record_and_by_its_speed(copied):
    path = copied / "result_1.txt"
    edit_log(path, lambda one: faster(one, start_of(path), 0.1))
    assert "record" in findings_of(judge(copied))
    write_records_anew(copied)
    assert "speed" in findings_of(judge(copied), grade="review")


def test_two_runs_at_the_same_time_are_for_review(copied):
    starts = [start_of(copied / f"result_{index}.txt") for index in (0, 1)]
    apart = starts[1] - starts[0]
    edit_log(copied / "result_1.txt", lambda one: one | {"time_ms": one["time_ms"] - apart + 1})
    write_records_anew(copied)
    assert "overlap" in findings_of(judge(copied), grade="review")


def said(judged, grade="review"):
    of_runs = [finding for verdict in judged.verdicts for finding in verdict.findings]
    return " ".join(one.message for one in (*of_runs, *judged.findings) if one.grade == grade)


def test_without_a_plan_the_judge_says_what_cannot_be_known(copied):
    (copied / "plan.json").unlink()
    judged = judge(copied, "mini-1.0")
    assert "cannot be verified that they are all runs" in said(judged)


def test_a_plan_that_names_no_jobs_is_none(copied):
    edit_plan(copied, lambda plan: plan.pop("jobs"))
    assert "cannot be verified that they are all runs" in said(judge(copied))


def test_without_a_record_the_judge_says_what_cannot_be_known(copied):
    (copied / "record_3.json").unlink()
    assert "Missing records: record_3.json;" in said(judge(copied))


def test_without_its_digest_of_the_plan_a_log_does_not_say_which_plan_it_was_given(copied):
    edit_log(copied / "result_0.txt", lambda one: None if one["key"] == "plan_digest" else one)
    write_records_anew(copied)
    assert "so it cannot be verified that the run used plan.json" in said(judge(copied))


def test_who_writes_logs_and_records_anew_alike_is_not_found_without_a_signature(copied):
    """The limit of all this: logs that were made faster alike, with records to match."""
    for path in copied.glob("result_*.txt"):
        start = start_of(path)
        edit_log(path, lambda one, start=start: faster(one, start, 0.5))
    write_records_anew(copied)
    assert judge(copied).score.valid
