"""Clock of a log: read by interval, not line by line."""

from dataclasses import replace

import pytest

from train_bench.core.event import Event, Events
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.clock import check_clock
from train_bench.judge.checks.ranks import disturbance
from train_bench.judge.checks.review import review
from train_bench.judge.compliance import RunVerdict
from train_bench.judge.finding import BREAKS, REVIEW, Finding
from train_bench.judge.score import _timed_well
from train_bench.logs.log import NO_CONTENT, Log
from train_bench.logs.record import make_record
from train_bench.rules import ruleset

RULES = ruleset.load("training-6.0.0").benchmark("llama31_8b")
MINUTE = 60_000
START = 1_780_000_000_000


def lines(*, blocks=14, gap=10, step_at=None, step=0, within=False):
    """(key, time, metadata) of a run with blocks of 350 s, whose clock steps before block `step_at` or `within` it."""
    listed = [
        ("cache_clear", START - 20_000, {}),
        ("init_start", START, {}),
        ("init_stop", START + MINUTE, {}),
    ]
    now = START + MINUTE + gap
    listed.append(("run_start", now, {}))
    shift = 0
    for at in range(blocks):
        shift += step if at == step_at and not within else 0
        listed.append(("block_start", now + shift + 1, {"samples_count": 12288 * at}))
        shift += step if at == step_at and within else 0
        now += 350_000
        count = {"samples_count": 12288 * (at + 1)}
        listed.append(("block_stop", now + shift, count))
        now += 9_000
        listed.append(("eval_accuracy", now + shift, count))
    listed.append(("run_stop", now + shift + 1, {"status": "success"}))
    return listed


def findings(listed, check=None, waited=True):
    events = Events(
        Event(
            key=key,
            value={
                "eval_accuracy": 3.2,
                "submission_division": "closed",
                "processor_wait": waited,
            }.get(key, True),
            time_ms=time,
            metadata=metadata,
            line=line,
        )
        for line, (key, time, metadata) in enumerate(
            [*listed[:1], ("submission_division", START, {}), *listed[1:]], 1
        )
    )
    log = Log(path="result_3.txt", events=events, problems=(), sha256=NO_CONTENT)
    record = make_record(log, index=3, rules=RULES)
    if check is None:
        return list(check_clock(record, log, RULES))
    case = LogCase(record=record, log=log, rules=RULES, failures=(), as_logged=(record, log))
    return [one for one in review(case) if one.check == check]


def test_a_run_whose_times_go_on_has_no_finding():
    assert findings(lines()) == []


def test_lines_of_several_nodes_before_the_clock_are_in_no_order():
    clears = [("cache_clear", START - 20_000 - at * 177, {}) for at in range(8)]
    assert findings([*clears, *lines()[1:]]) == []


@pytest.mark.parametrize("at", [-1, 8], ids=["behind run_stop", "on the clock"])
def test_what_a_collector_puts_elsewhere_is_not_on_the_clock(at):
    listed = lines()
    first = listed.pop(0)
    if at < 0:
        listed.append(first)
    else:
        listed.insert(at, first)
    assert findings([*listed[:1], *listed[1:]]) == []


@pytest.mark.parametrize("step", [-1_800_000, -60_000, -9_000], ids=str)
def test_a_step_back_between_lines_is_found_with_how_far_and_where(step):
    (found,) = findings(lines(step_at=7, step=step))
    assert found.check == "time" and found.grade == REVIEW
    assert f"{-step - 1} ms before the line above it" in found.message
    assert "between run_start and run_stop of result_3.txt" in found.message


def test_of_several_steps_back_the_largest_is_named():
    listed = lines(step_at=7, step=-20_000)
    listed.insert(8, ("throughput", listed[7][1] - 5, {}))
    (found,) = findings(listed)
    assert "19999 ms before the line above it (the largest of 2 steps back)" in found.message


@pytest.mark.parametrize("step", [-340_000, -150_000], ids=str)
def test_a_step_back_within_a_block_makes_it_shorter_than_the_others(step):
    (found,) = findings(lines(step_at=7, step=step, within=True))
    assert f"took {350 + step / 1000:.1f} s" in found.message and "13 of 14" in found.message
    assert f"steps back by {-step / 1000:.0f} s" in found.message


def test_a_short_block_is_no_step_where_the_ranks_measured_as_much_as_the_log_has():
    listed = lines(step_at=7, step=-150_000, within=True)
    window = (listed[-1][1] - listed[3][1]) / 1000
    listed.insert(-1, ("processor_wait", listed[-1][1], {}))
    assert findings(listed, waited={"seconds": window + 0.5}) == []
    for seconds in (window + 150.0, window - 100.0, None, "x"):
        assert len(findings(listed, waited={"seconds": seconds})) == 1


def test_blocks_that_vary_as_those_of_a_busy_machine_are_no_finding():
    assert findings(lines(step_at=7, step=-60_000, within=True)) == []
    assert findings(lines(step_at=7, step=600_000, within=True)) == []


def test_the_epoch_in_which_the_run_ends_may_be_short_where_no_samples_are_counted():
    def by_epochs(listed):
        return [
            (key.replace("block", "epoch"), time, {} if key.startswith("block") else metadata)
            for key, time, metadata in listed
        ]

    assert findings(by_epochs(lines(step_at=13, step=-340_000, within=True))) == []
    assert findings(by_epochs(lines(step_at=7, step=-340_000, within=True)))
    assert findings(lines(step_at=13, step=-340_000, within=True))


def test_blocks_that_are_logged_when_they_are_issued_are_no_finding():
    listed = [
        (key, time if key != "block_stop" or metadata["samples_count"] % 24576 else time - 349_999, metadata)
        for key, time, metadata in lines()
    ]
    assert findings(listed) == []


def test_a_clock_that_starts_after_the_time_of_the_initialisation_is_a_finding():
    (found,) = findings(lines(gap=120 * MINUTE))
    assert found.check == "init"
    assert "starts 121.0 minutes after init_start, 120.0 of them after init_stop" in found.message
    assert "30 minutes after init_start at the latest" in found.message
    (near,) = findings(lines(gap=29 * MINUTE + 1000))
    assert "The clock starts 30.02 minutes" in near.message


def test_minutes_before_the_clock_are_a_question_and_seconds_are_none():
    (found,) = findings(lines(gap=309_000))
    assert found.grade == REVIEW and "5.2 minutes lie between init_stop and run_start" in found.message
    assert findings(lines(gap=97_000)) == []


def test_an_initialisation_that_ends_before_it_begins_is_a_finding():
    listed = [(key, time - 90_000 if key == "init_stop" else time, data) for key, time, data in lines()]
    assert "30000 ms before init_start" in findings(listed)[-1].message


@pytest.mark.parametrize("key", ["block_stop", "epoch_stop", "eval_stop"])
def test_an_interval_that_ends_a_moment_after_the_clock_is_no_finding(key):
    listed = lines()
    end = listed[-1][1]
    assert findings([*listed, (key, end + 1, {})], "outside") == []
    assert findings([*listed, (key, end + 1001, {})], "outside")
    assert findings([*listed, ("eval_accuracy", end + 1, {"samples_count": 5})], "outside")


def test_an_evaluation_of_untrained_weights_before_the_clock_is_for_review():
    listed = lines()
    for key in ("eval_start", "eval_accuracy", "eval_stop"):
        evaluated = [*listed[:2], (key, START + 1, {"epoch_num": 0}), *listed[2:]]
        assert [one.grade for one in findings(evaluated, "outside")] == [REVIEW]
    trained = [*evaluated[:3], ("eval_accuracy", START + 2, {"epoch_num": 1}), *evaluated[3:]]
    assert BREAKS in [one.grade for one in findings(trained, "outside")]
    for key, metadata in (
        ("block_start", {"epoch_num": 0}),
        ("eval_accuracy", {}),
        ("eval_stop", {"epoch_num": "0"}),
    ):
        unclear = [*listed[:2], (key, START + 1, metadata), *listed[2:]]
        assert [one.grade for one in findings(unclear, "outside")] == [BREAKS]


def verdict(check=None, *, converged=True, compliant=True):
    found = (
        [] if check is None else [Finding(check=check, grade=REVIEW, file="", line=0, key=None, message="")]
    )
    return RunVerdict(
        converged=converged, compliant=compliant, officially_compliant=True, findings=tuple(found)
    )


@pytest.mark.parametrize(
    ("odd", "compared"),
    [
        *((verdict(), True), (verdict("seed"), True), (verdict("time"), False), (verdict("clock"), False)),
        *((verdict(converged=False), False), (verdict(compliant=False), False)),
    ],
)
def test_runs_that_do_not_count_or_whose_clock_is_wrong_explain_no_other(odd, compared):
    log = Log(path="result_0.txt", events=Events(), problems=(), sha256=NO_CONTENT)
    record = make_record(log, index=0, rules=RULES)
    speeds = [34.2, 34.2, 53.3]
    records = [replace(record, index=at, samples_per_second=speed) for at, speed in enumerate(speeds)]
    timed = _timed_well(records, [verdict(), verdict(), odd])
    assert (disturbance(records, timed) is not None) is compared


def test_lines_before_run_start_and_behind_run_stop_are_compared_with_none():
    listed = lines()
    late = [*listed, ("throughput", listed[-1][1] - 5000, {}), ("eval_accuracy", listed[-1][1] - 6000, {})]
    early = [*listed[:2], ("throughput", listed[-1][1], {}), ("power", listed[-1][1] - 1000, {}), *listed[2:]]
    assert findings(late) == findings(early) == []


DIFFUSION = ruleset.load("training-5.0.0").benchmark("stable_diffusion")


def diffusion(*, back=0):
    """A run whose checkpoints at 512000 and 1024000 images are evaluated when it has trained a third one: its time ends
    with the second, which reaches the target, and its first block ends `back` earlier."""
    ends = [START + 700_000 * at for at in range(4)]
    shown = [("run_start", START, None, {}), ("global_batch_size", START, 512, {})]
    for at in range(3):
        shown.append(("block_start", ends[at] + 1, None, {"samples_count": 512_000 * at}))
        wrong = back if at == 0 else 0
        shown.append(("block_stop", ends[at + 1] - wrong, None, {"samples_count": 512_000 * (at + 1)}))
    for at, fid in ((2, 80.0), (1, 95.0)):
        for metric, value in (("FID", fid), ("CLIP", 0.2)):
            later = ends[3] + 60_000 * (4 - at)
            shown.append(("eval_accuracy", later, value, {"samples_count": 512_000 * at, "metric": metric}))
    shown.append(("run_stop", ends[2] + 5, None, {"status": "success"}))
    events = Events(
        Event(key=key, value=value, time_ms=time, metadata=metadata, line=line)
        for line, (key, time, value, metadata) in enumerate(shown, 1)
    )
    log = Log(path="result_3.txt", events=events, problems=(), sha256=NO_CONTENT)
    record = make_record(log, index=3, rules=DIFFUSION)
    case = LogCase(record=record, log=log, rules=DIFFUSION, failures=[], as_logged=(record, log))
    return record, {
        one.check: one.message for one in review(case) if one.check in ("time", "outside", "schedule", "stop")
    }


def test_checkpoints_that_are_evaluated_later_are_in_no_order_and_outside_of_the_clock():
    record, found = diffusion()
    assert record.convergence == 1_024_000
    assert found == {}


def test_a_clock_that_steps_back_before_the_checkpoint_is_found_there_too():
    _, found = diffusion(back=700_100)
    assert "block_stop is logged at" in found["time"] and "timestamps go backwards" in found["time"]
