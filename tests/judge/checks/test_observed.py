"""A program of the user's own against what was observed of it from outside."""

import json

import pytest

from tests.judge.campaigns import MINI, campaign, plan
from tests.judge.checks.test_campaign_checks import RAN, attempt, findings_of
from tests.judge.checks.test_cheats import edit_log
from train_bench.judge.tree import judge_folder

PROGRAM = RAN | {"software": RAN["software"] | {"program": {"files": {}}}}


@pytest.fixture
def folder(tmp_path):
    """A campaign of a command, of which everything was observed: runs of 60 to 64 s, and programs that computed."""
    campaign(tmp_path, ["good"] * MINI.runs)
    plan(tmp_path, **PROGRAM | {"points_digest": None, "changes": []}, world_size=1)
    for index in range(MINI.runs):
        observe(tmp_path, index)
    return tmp_path


def times(folder, index):
    """Milliseconds of `run_start` and `run_stop`."""
    first = {}
    for text in (folder / f"result_{index}.txt").read_text().splitlines():
        event = json.loads(text.partition(":::MLLOG ")[2])
        first.setdefault(event["key"], event["time_ms"])
    return first["run_start"], first["run_stop"]


def observe(folder, index, *, seen=None, **changes):
    """The record of the attempt at a run, as train_bench has observed it, with changes."""
    started, stopped = times(folder, index)
    data = {"watched": True, "opened": 4, "unknown": None, "held": 0}
    observed = {
        "wrote_log": False,
        "started_ms": started - 3000,
        "ended_ms": stopped + 500,
        "seconds": (stopped - started) / 1000 + 3.5,
        "processor_seconds": 50.0,
        "clock_processor_seconds": 45.0,
        "accelerators": 0,
        "left_processes": 0,
        "data": data | changes.pop("data", {}),
    }
    seconds = (stopped - started) / 1000 if seen is None else seen
    attempt(folder, index, **PROGRAM, clock_seconds=seconds, observed=observed | changes)


def judged(folder):
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder / "no_points"])


def found(folder):
    judgement = judged(folder)
    kinds = ("clock", "processor_time", "data")
    return {kind: findings_of(judgement, kind) for kind in kinds if findings_of(judgement, kind)}


def sentence(folder):
    ((_, message),) = findings_of(judged(folder), "program")
    verified, _, unknown = message.partition(" Not verifiable: ")
    return verified, unknown


def test_an_honest_program_has_no_finding(folder):
    assert found(folder) == {}
    verified, unknown = sentence(folder)
    assert "train_bench saw run_start and run_stop arrive as far apart as the log has them" in verified
    assert unknown.startswith("the quality, which the program alone measured, and with it that it trained")


def test_who_owned_the_clock_is_never_read_from_the_log(folder):
    def forge(one):
        if one["key"] == "run_stop":
            one["metadata"]["written_by"] = "train_bench.Benchmark 1.0"
        return one

    for index in range(MINI.runs):
        log = folder / f"result_{index}.txt"
        forged = {
            "written_by": "train_bench.Benchmark 1",
            "data_before_run_start": {"files": 0, "unknown": None},
        }
        for key, value in forged.items():
            line = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
            log.write_text(f":::MLLOG {json.dumps(line | {'metadata': {}})}\n" + log.read_text())
        edit_log(log, forge)
        attempt(folder, index, **PROGRAM)
    verified, unknown = sentence(folder)
    assert verified.endswith("Verified: nothing.")
    assert "the clock, which is the program's own; the quality" in unknown
    assert "no data access before run_start" in unknown


def test_the_clock_of_calls_by_lines_is_that_of_train_bench(folder):
    for index in range(MINI.runs):
        observe(folder, index, wrote_log=True)
    assert (
        "the clock is that of train_bench, started and stopped by the program's calls" in sentence(folder)[0]
    )
    observe(folder, 3, wrote_log=False)
    assert "the clock is that of train_bench" not in sentence(folder)[0]


@pytest.mark.parametrize("seen", [0.0, 40.0, 90.0])
def test_a_log_that_arrived_at_other_times_has_a_clock_of_its_own(folder, seen):
    observe(folder, 2, seen=seen)
    assert "the clock, which is the program's own" in sentence(folder)[1]


def test_a_run_that_nobody_observed_says_so(folder):
    (folder / "attempts" / "run_1_1.json").write_text(json.dumps({"run": 1, "attempt": 1, **PROGRAM}))
    verified, unknown = sentence(folder)
    assert verified.endswith("Verified: nothing.")
    assert "no data access before run_start" in unknown


@pytest.mark.parametrize("seconds", [0.02, 0.5])
def test_next_to_no_processor_time_is_for_review(folder, seconds):
    observe(folder, 2, clock_processor_seconds=seconds)
    ((grade, message),) = found(folder)["processor_time"]
    assert grade == "review"
    assert (
        "In 1 of 5 runs the processes of the program used next to no processor time on the clock, for example "
        f"{seconds:.2f} s in 62.00 s" in message
    )
    assert judged(folder).score.valid


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_processor_seconds": 0.5, "accelerators": 8},
        {"clock_processor_seconds": None},
        {"clock_processor_seconds": 1.6},
        {"data": {"opened": 0}},
        {"data": {"opened": None, "unknown": "there is no folder x"}},
        {"started_ms": None, "ended_ms": None, "seconds": None},
        {"clock_processor_seconds": "none", "accelerators": [], "data": {"opened": "x"}, "seconds": 10**400},
    ],
)
def test_what_an_honest_program_may_do_is_no_finding(folder, changes):
    observe(folder, 2, **changes)
    assert found(folder) == {}


@pytest.mark.parametrize(("used", "asked"), [(1.3, False), (0.5, True)])
def test_a_stated_loss_does_not_excuse_an_idle_program(folder, used, asked):
    observe(folder, 2, clock_processor_seconds=used)
    edit_log(
        folder / "result_2.txt",
        lambda one: (
            one | {"value": one["value"] | {"lost": 0.9, "ran": used}}
            if one["key"] == "processor_wait"
            else one
        ),
    )
    assert ("processor_time" in found(folder)) is asked


def test_a_program_that_idles_and_opens_no_data_is_named_with_both(folder):
    for index in range(MINI.runs):
        observe(folder, index, clock_processor_seconds=0.01, data={"opened": 0})
    messages = found(folder)
    assert "In 5 of these runs no file of the benchmark's data folder was opened" in messages["data"][0][1]
    assert (
        "which data were read (in 5 of 5 runs no file of the data folder was opened)" in sentence(folder)[1]
    )


def test_a_log_cannot_claim_more_processor_time_than_there_was(folder):
    observe(folder, 2, processor_seconds=0.3, clock_processor_seconds=0.2, accelerators=1)
    wait = {
        "machines": 1,
        "lost": 0,
        "seconds": 60,
        "ran": 55.0,
        "waited": 0,
        "others": 0,
        "steal": 0,
        "throttled": 0,
    }
    edit_log(
        folder / "result_2.txt", lambda one: one | {"value": wait} if one["key"] == "processor_wait" else one
    )
    assert any(
        "says that the ranks used 55.00 s" in message for _, message in found(folder)["processor_time"]
    )


def test_a_clock_that_ran_longer_than_its_program_breaks_a_rule(folder):
    started, _ = times(folder, 2)
    observe(folder, 2, started_ms=started, ended_ms=started + 9000, seconds=9.0)
    ((grade, message),) = found(folder)["clock"]
    assert grade == "breaks"
    assert "the clock ran 62.0 s, but its program ran 9.0 s from start to end" in message


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (-500_000, "run_stop 499.5 s after the program had ended"),
        (500_000, "run_start 497.0 s before the program started"),
    ],
)
def test_times_outside_of_the_life_of_the_program_are_for_review(folder, by, said):
    started, stopped = times(folder, 2)
    observe(folder, 2, started_ms=started - 3000 + by, ended_ms=stopped + 500 + by)
    ((grade, message),) = found(folder)["clock"]
    assert grade == "review"
    assert said in message


def test_data_that_were_open_before_are_not_called_untouched(folder):
    observe(folder, 2, data={"held": 2})
    assert "no data access before run_start by processes that had the data open before" in sentence(folder)[1]


STEPS = 2691 / 64
"""Training steps of the good log."""


@pytest.mark.parametrize(
    ("ran", "waited", "opened", "number"),
    [
        *(
            (STEPS * 4e-5, 1.0, 4, 1),
            (STEPS * 4e-5, 59.0, 4, 0),
            (STEPS * 4e-5, None, 4, 0),
            (STEPS * 2e-5, 59.0, 0, 1),
        ),
        *((-5.0, 1.0, 4, 0), (10**400, 1.0, 4, 0)),
    ],
)
def test_small_steps_of_a_program_that_wants_the_processor_are_honest(folder, ran, waited, opened, number):
    observe(folder, 2, accelerators=1, data={"opened": opened})
    wait = {"machines": 1, "lost": 0, "seconds": 60, "ran": ran, "waited": waited}
    edit_log(
        folder / "result_2.txt", lambda one: one | {"value": wait} if one["key"] == "processor_wait" else one
    )
    assert len(found(folder).get("processor_time", [])) == number
