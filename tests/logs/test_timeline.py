"""Where the time of a run went, and what else its log says."""

import json

import pytest

from tests.judge.campaigns import LOGS, MINI
from train_bench.logs import log
from train_bench.logs.record import make_record
from train_bench.logs.timeline import LONGEST_TEXT, read_timeline


def timeline(path, events, cited=()):
    """Of a log of `(seconds, key, value)`."""
    lines = [
        f":::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': 1000 * seconds, 'metadata': {}})}"
        for seconds, key, value in events
    ]
    return of_text(path, "\n".join(lines), cited)


def of_text(path, text, cited=()):
    file = path / "result_0.txt"
    file.write_text(text)
    read = log.read(file)
    return read_timeline(make_record(read, index=0, rules=MINI), file.read_bytes(), set(cited))


def seconds(phases):
    parts = (phases.init, phases.data, phases.train, phases.evaluation, phases.other)
    return [None if part is None else round(part * 60, 3) for part in parts]


WHOLE = [
    (0, "init_start", None),
    (5, "run_start", None),
    (7, "block_start", None),
    (17, "block_stop", None),
    (18, "eval_start", None),
    (21, "eval_stop", None),
    (25, "run_stop", None),
]


def test_the_time_is_told_as_initialisation_data_training_evaluation_and_the_rest(tmp_path):
    assert seconds(timeline(tmp_path, WHOLE).phases) == [5, 2, 10, 3, 5]


def test_the_parts_inside_the_clock_add_up_to_the_minutes_of_the_run(tmp_path):
    phases = of_text(tmp_path, (LOGS / "good.txt").read_text()).phases
    assert sum(seconds(phases)[1:]) == pytest.approx(7335 / 1000 - 1023 / 1000)
    assert seconds(phases)[:4] == [1.004, 0.003, 6.0, 0.303]


def test_an_evaluation_inside_a_block_is_no_training(tmp_path):
    inside = [
        *WHOLE[:3],
        (10, "eval_start", None),
        (12, "eval_stop", None),
        (25, "block_stop", None),
        WHOLE[-1],
    ]
    assert seconds(timeline(tmp_path, inside).phases) == [5, 2, 16, 2, 0]


def test_epochs_around_blocks_are_counted_once(tmp_path):
    around = [*WHOLE[:2], (6, "epoch_start", None), *WHOLE[2:4], (17, "epoch_stop", None), *WHOLE[4:]]
    assert seconds(timeline(tmp_path, around).phases) == [5, 1, 11, 3, 5]


def test_evaluations_that_are_not_told_apart_are_unknown_and_not_zero(tmp_path):
    without = [event for event in WHOLE if not event[1].startswith("eval")]
    assert seconds(timeline(tmp_path, without).phases) == [5, 2, 10, None, 8]


def test_what_is_left_open_ends_with_the_clock(tmp_path):
    assert seconds(timeline(tmp_path, [*WHOLE[:3], WHOLE[-1]]).phases) == [5, 2, 18, None, 0]


def test_a_run_that_died_is_told_up_to_its_last_line(tmp_path):
    assert seconds(timeline(tmp_path, WHOLE[:5]).phases) == [5, 2, 10, 0, 1]


def test_what_lies_outside_the_clock_is_not_counted(tmp_path):
    late = [*WHOLE, (30, "eval_start", None), (40, "eval_stop", None)]
    assert seconds(timeline(tmp_path, late).phases) == [5, 2, 10, 3, 5]


def test_a_log_whose_clock_never_started_has_no_phases(tmp_path):
    assert timeline(tmp_path, WHOLE[:1]).phases is None
    assert of_text(tmp_path, "").phases is None


def test_values_are_told_once_as_text(tmp_path):
    read = timeline(
        tmp_path, [(0, "opt_name", "lars"), (1, "opt_name", "lars"), (2, "opt_name", [1, 2]), *WHOLE]
    )
    assert read.values == {"opt_name": ("lars", "[1, 2]")}


def test_cited_lines_are_kept_and_long_ones_cut(tmp_path):
    read = of_text(tmp_path, "one\n" + "x" * 5000 + "\nthree\n", cited=[2, 3, 99])
    assert read.lines == {2: "x" * LONGEST_TEXT, 3: "three"}
