"""The pace of a machine from what its logs say."""

import numpy as np
import pytest

from train_bench.core.event import Event
from train_bench.errors import RequestError
from train_bench.forecast import log_pace
from train_bench.logs.log import Log
from train_bench.logs.record import make_record
from train_bench.rules import ruleset

RULES = ruleset.load("training-3.1.0").benchmark("maskrcnn")  # an evaluation every epoch


def log_of(tmp_path, blocks, *, opening=3.0, evaluation=2.0, marks=True):
    """A log whose epochs take `blocks` seconds each."""
    events, now = [], 1_000_000.0

    def say(key, seconds=0.0, value=None, **metadata):
        nonlocal now
        now += 1000 * seconds
        events.append(
            Event(key=key, value=value, time_ms=round(now), line=len(events) + 1, metadata=metadata)
        )

    say("global_batch_size", value=64)
    say("run_start")
    for number, seconds in enumerate(blocks, start=1):
        say("block_start", opening if number == 1 else 0.0, first_epoch_num=number)
        say("block_stop", seconds)
        if marks:
            say("eval_start")
        say("eval_accuracy", evaluation / 2, value={"BBOX": 0.1, "SEGM": 0.1}, epoch_num=number)
        say("eval_stop" if marks else "other", evaluation / 2)
    say("run_stop", status="aborted")
    log = Log(path=tmp_path / "result_0.txt", events=tuple(events), problems=(), sha256="")
    return make_record(log, index=0, rules=RULES), log


def measured(*arguments, **options):
    return log_pace.measure(*log_of(*arguments, **options), RULES)


def test_opening_blocks_and_evaluations_are_told_apart(tmp_path) -> None:
    found = measured(tmp_path, [12.0, 10.0, 11.0, 10.0])

    assert found.opening == 3.0
    assert found.units == pytest.approx((12.0, 10.0, 11.0, 10.0))
    assert found.evaluations == (2.0, 2.0, 2.0, 2.0)


def test_evaluations_without_times_of_their_own_are_part_of_the_blocks(tmp_path) -> None:
    found = measured(tmp_path, [10.0, 10.0, 10.0], marks=False)

    assert found.evaluations == ()
    assert found.units == pytest.approx((11.0, 12.0, 12.0))


def test_the_pace_is_the_median_of_the_blocks_behind_the_first(tmp_path) -> None:
    pace = log_pace.pace([measured(tmp_path, [30.0, 10.0, 11.0, 50.0])], "probe", "here")

    assert np.median(pace.unit) == pytest.approx(11.0, rel=0.05)
    assert np.median(pace.opening) == 3.0
    assert np.median(pace.evaluation) == 2.0
    assert pace.notes == ()


def test_a_probe_of_one_block_says_that_it_is_the_first(tmp_path) -> None:
    pace = log_pace.pace([measured(tmp_path, [10.0])], "probe", "here")

    assert any("only the first block" in note for note in pace.notes)


def test_blocks_that_differ_make_the_pace_less_sure(tmp_path) -> None:
    one = log_pace.pace([measured(tmp_path, [10.0])], "probe", "here")
    steady = log_pace.pace([measured(tmp_path, [10.0] * 31)], "probe", "here")
    unsteady = log_pace.pace([measured(tmp_path, [10.0, *[8.0, 10.0, 13.0] * 10])], "probe", "here")

    assert one.between_runs == log_pace.UNSTEADY
    assert np.std(np.log(one.unit)) == pytest.approx(log_pace.UNSTEADY * 2**0.5, rel=0.1)
    assert steady.between_runs == pytest.approx(log_pace.UNSTEADY / 30**0.5)
    assert unsteady.between_runs == pytest.approx(np.std(np.log([8, 10, 13])), rel=0.05)


def test_runs_that_differ_from_each_other_are_expected_to_go_on_doing_so(tmp_path) -> None:
    runs = [measured(tmp_path, [seconds] * 5) for seconds in (10.0, 12.0, 14.0, 16.0)]

    pace = log_pace.pace(runs, "log", "there")

    deviations = np.log([10, 12, 14, 16]) - np.mean(np.log([10, 12, 14, 16]))
    assert pace.between_runs == pytest.approx(((deviations**2).sum() + log_pace.UNSTEADY**2) ** 0.5 / 2)
    assert np.std(np.log(pace.unit)) == pytest.approx(pace.between_runs / 2, rel=0.25)


def test_a_log_without_an_evaluation_tells_no_pace(tmp_path) -> None:
    with pytest.raises(RequestError, match="has no evaluation with a position after its run_start"):
        measured(tmp_path, [])


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_a_throughput_of_nothing_is_refused(number) -> None:
    with pytest.raises(RequestError, match="The throughput is"):
        log_pace.stated(number, None, 1000)


def test_a_stated_throughput_is_taken_as_it_is() -> None:
    pace = log_pace.stated(500.0, 4.0, 1000.0)

    assert pace.unit.tolist() == [2.0]
    assert pace.evaluation.tolist() == [4.0]
