"""The order of a run is behaviour, tested by name."""

import json
from pathlib import Path

import pytest

from tests.run.fakes import CountingClock, FakeTask, OneRank, job
from train_bench.errors import LaunchError, WriteError
from train_bench.progress import Unit
from train_bench.quality import Quality
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run
from train_bench.task import LearningRates


def run(tmp_path, task, **changes):
    log = Log(tmp_path / "result.txt", task.clock)
    try:
        status = timed_run(task, job(tmp_path, **changes), OneRank(), log)
    finally:
        log.close()
    return status, lines(tmp_path)


def lines(tmp_path):
    text = (tmp_path / "result.txt").read_text()
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]


def keys(events):
    return [event["key"] for event in events]


def only(events, key):
    return [event for event in events if event["key"] == key]


def test_events_come_in_the_order_that_the_rules_demand(tmp_path):
    _, events = run(tmp_path, FakeTask([0.5, 0.95]))
    cycle = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert keys(events) == [
        "cache_clear",
        "submission_benchmark",
        "global_batch_size",
        "seed",
        "init_start",
        "weights_initialization",
        "weights_initialization",
        "init_stop",
        "run_start",
        "train_samples",
        "eval_samples",
        "data_fingerprint",
        *cycle,
        *cycle,
        "run_stop",
        "processor_wait",
        "peak_memory",
        "data_wait",
        "order_fingerprint",
        "learning_rates",
        "replicas",
        "loaded_code",
    ]


def test_learning_rates_are_told_by_a_task_that_knows_them_and_by_no_other(tmp_path):
    class Rated(FakeTask):
        def learning_rates(self):
            return LearningRates(first=0.0, highest=0.5)

    folders = (tmp_path / "fake", tmp_path / "rated")
    for folder in folders:
        folder.mkdir()
    told = [run(folder, kind([0.95]))[1] for folder, kind in zip(folders, (FakeTask, Rated), strict=True)]
    values = [only(events, "learning_rates")[0]["value"] for events in told]
    assert values == [None, {"first": 0.0, "highest": 0.5}]


def test_the_model_is_built_before_the_clock_and_data_are_opened_after_it_started(tmp_path):
    task = FakeTask([0.95])
    _, events = run(tmp_path, task)
    assert task.diary[:2] == ["build", "open_data"]
    started = only(events, "run_start")[0]["time_ms"]
    assert only(events, "init_stop")[0]["time_ms"] < started < only(events, "train_samples")[0]["time_ms"]
    assert started - only(events, "init_start")[0]["time_ms"] > 5_000


def test_the_timed_window_holds_training_and_evaluation_and_nothing_else(tmp_path):
    _, events = run(tmp_path, FakeTask([0.5, 0.95]))
    window = only(events, "run_stop")[0]["time_ms"] - only(events, "run_start")[0]["time_ms"]
    looks_at_the_clock = keys(events).index("run_stop") - keys(events).index("run_start")
    assert window == 2 * (60_000 + 1_000) + looks_at_the_clock


def test_training_stops_at_the_first_evaluation_that_reaches_the_target(tmp_path):
    task = FakeTask([0.5, 0.91, 0.99])
    status, events = run(tmp_path, task)
    assert status == "success"
    assert task.diary == ["build", "open_data", "train_until 100", "evaluate", "train_until 200", "evaluate"]
    assert only(events, "run_stop")[0]["metadata"]["status"] == "success"


def test_a_run_that_never_reaches_the_target_ends_with_its_schedule_and_says_aborted(tmp_path):
    status, events = run(tmp_path, FakeTask([0.1, 0.2, 0.3, 0.4, 0.99]))
    assert status == "aborted"
    assert [event["metadata"]["epoch_num"] for event in only(events, "eval_accuracy")] == [1, 2, 3, 4]
    assert only(events, "run_stop")[0]["metadata"]["status"] == "aborted"


def test_a_run_that_diverges_ends_at_once(tmp_path):
    status, events = run(tmp_path, FakeTask([0.1, float("nan"), 0.95]))
    assert status == "aborted"
    assert len(only(events, "eval_accuracy")) == 2


@pytest.mark.parametrize("moment", ["open_data", "train_until 200", "evaluate"])
def test_an_exception_on_the_clock_leaves_an_aborted_run_stop_and_travels_on(tmp_path, moment):
    task = FakeTask([0.1, 0.2], fail_in=moment)
    with pytest.raises(ValueError, match=moment):
        run(tmp_path, task)
    assert only(lines(tmp_path), "run_stop")[0]["metadata"]["status"] == "aborted"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            Quality(metrics={"accuracy": 0.95}),
            r"gave accuracy, and the target top1 >= 0\.9 needs top1; spell",
        ),
        (Quality(metrics={"Top1": 0.95}), "gave Top1, and the target"),
        (Quality(metrics={}), "gave no metric, and the target"),
        (Quality(metrics={"top1": "0.95"}), "gave '0.95' as top1; it has to be a number"),
        (Quality(metrics={"top1": True}), "gave True as top1; it has to be a number"),
        (0.95, r"gave 0\.95; it has to give a Quality"),
        (None, "gave None; it has to give a Quality"),
    ],
)
def test_an_evaluation_that_the_target_cannot_be_held_against_ends_the_run_at_once(
    tmp_path, answer, sentence
):
    task = FakeTask([0.5] * 4)
    task.evaluate = lambda: answer
    with pytest.raises(LaunchError, match=f"The reference fake cannot be judged: evaluate\\(\\) {sentence}"):
        run(tmp_path, task)
    assert [word for word in task.diary if word.startswith("train_until")] == ["train_until 100"]


def test_an_exception_before_the_clock_leaves_no_run_stop(tmp_path):
    with pytest.raises(ValueError, match="build"):
        run(tmp_path, FakeTask([], fail_in="build"))
    assert "run_start" not in keys(lines(tmp_path))
    assert "run_stop" not in keys(lines(tmp_path))


def test_blocks_and_evaluations_agree_on_their_epochs(tmp_path):
    _, events = run(tmp_path, FakeTask([0.1, 0.95]))
    blocks = [event["metadata"] for event in only(events, "block_start")]
    assert [(block["first_epoch_num"], block["epoch_count"]) for block in blocks] == [(1, 1), (2, 1)]
    assert [event["metadata"]["epoch_num"] for event in only(events, "eval_stop")] == [1, 2]


@pytest.mark.parametrize(("qualities", "used"), [([0.5, 0.95], 200), ([0.1, 0.2, 0.3, 0.4], 400)])
def test_samples_that_training_took_are_logged_once_behind_the_last_evaluation(tmp_path, qualities, used):
    _, events = run(tmp_path, FakeTask(qualities, train_samples=None), unit=Unit.SAMPLE)
    end = keys(events).index("run_stop") + 1
    assert keys(events)[end - 3 : end] == ["eval_stop", "train_samples", "run_stop"]
    assert [event["value"] for event in only(events, "train_samples")] == [used]


def test_a_benchmark_without_a_training_set_that_counts_no_samples_logs_none(tmp_path):
    _, events = run(tmp_path, FakeTask([0.95], train_samples=None), unit=Unit.GENERATION)
    assert only(events, "train_samples") == []


def test_a_hyperparameter_that_is_none_is_not_logged(tmp_path):
    _, events = run(tmp_path, FakeTask([0.95]))
    assert "lars_epsilon" not in keys(events)
    assert only(events, "global_batch_size")[0]["value"] == 32


def test_caches_that_were_not_dropped_are_logged_as_such(tmp_path):
    _, events = run(tmp_path, FakeTask([0.95]))
    assert only(events, "cache_clear")[0]["value"] is False


def test_every_line_names_its_place_in_the_referee(tmp_path):
    _, events = run(tmp_path, FakeTask([0.95]))
    assert {event["metadata"]["file"] for event in events} == {"train_bench/run/timed_run.py"}


def test_the_seed_is_logged_once_and_from_one_line_in_every_run(tmp_path):
    _, first = run(tmp_path, FakeTask([0.95]), seed=1)
    (tmp_path / "result.txt").unlink()
    _, second = run(tmp_path, FakeTask([0.95]), seed=2)
    assert [event["value"] for event in only(first, "seed") + only(second, "seed")] == [1, 2]
    assert only(first, "seed")[0]["metadata"] == only(second, "seed")[0]["metadata"]


def test_a_full_disk_ends_the_run_instead_of_losing_lines():
    log = Log(Path("/dev/full"), CountingClock())
    try:
        with pytest.raises(WriteError, match="No space is left"):
            log.init_start()
    finally:
        log.close()


def test_other_ranks_than_the_first_write_nothing(tmp_path):
    log = Log(None, CountingClock())
    assert timed_run(FakeTask([0.95]), job(tmp_path), OneRank(), log) == "success"
    assert list(tmp_path.iterdir()) == []


class TwoRanks(OneRank):
    """A rank whose other one ends once the clock has stopped."""

    size = 2

    def __init__(self):
        self.left = False

    def gather_objects(self, value):
        if self.left:
            raise RuntimeError("Connection closed by peer")
        return [value, value]


def test_a_result_is_whole_before_ranks_look_back(tmp_path):
    task, rank, said = FakeTask([0.95]), TwoRanks(), []

    def stopped():
        said.append(keys(lines(tmp_path))[-1])
        rank.left = True

    log = Log(tmp_path / "result.txt", task.clock)
    with pytest.raises(RuntimeError, match="closed by peer"):
        timed_run(task, job(tmp_path), rank, log, stopped)
    log.close()
    assert said == ["run_stop"]
    assert [event["metadata"]["status"] for event in only(lines(tmp_path), "run_stop")] == ["success"]


def test_a_run_that_failed_on_the_clock_is_not_whole(tmp_path):
    task, said = FakeTask([0.95], fail_in="evaluate"), []
    log = Log(tmp_path / "result.txt", task.clock)
    with pytest.raises(ValueError, match="evaluate"):
        timed_run(task, job(tmp_path), OneRank(), log, lambda: said.append("stopped"))
    log.close()
    assert said == []
