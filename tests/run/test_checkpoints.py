"""A run that writes checkpoints goes on from the last whole one, in the same log and on the same clock."""

import json
import os

import pytest

from tests.run.fakes import CountingClock, FakeTask, OneRank, TracedLog, TracedRanks, job
from tests.run.test_timed_run import keys, lines, only
from train_bench.core import files, preemption
from train_bench.errors import Preempted
from train_bench.logs.log import read
from train_bench.logs.restarts import restarts_of, without_lost_work
from train_bench.progress import Progress
from train_bench.run.checkpoints import Checkpoints
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run

QUALITIES = [0.1, 0.2, 0.3, 0.95]


def start(tmp_path, task, *, seconds=0.0, clock=None):
    """One start of the run; an exception of the task stands for its death."""
    planned = job(tmp_path, checkpoint_seconds=seconds)
    log = Log(tmp_path / "result.txt", task.clock)
    try:
        times = {} if clock is None else {"clock": clock}
        return timed_run(task, planned, OneRank(), log, checkpoints=Checkpoints(planned, OneRank(), **times))
    finally:
        log.close()


def died(tmp_path, *failures):
    """What the campaign says of a start whose processes died."""
    folder = job(tmp_path).checkpoints_folder
    files.write_json(folder / "restart.json", {"now_ms": 1, "failures": list(failures)})


FAILURE = {"time_ms": 5, "deaths": "rank 0 killed by SIGKILL", "planted": None}


def test_a_run_goes_on_behind_its_last_checkpoint(tmp_path):
    first = FakeTask(QUALITIES, fail_in="train_until 300")
    with pytest.raises(ValueError, match="300"):
        start(tmp_path, first)
    died(tmp_path, FAILURE)
    second = FakeTask([], clock=first.clock)
    assert start(tmp_path, second) == "success"
    assert second.diary[:4] == ["build", "load", "open_data", "train_until 300"]
    told = lines(tmp_path)
    for key in (
        "seed",
        "init_start",
        "run_start",
        "data_fingerprint",
        "run_failed",
        "run_restored",
        "run_stop",
    ):
        assert len(only(told, key)) == 1
    assert only(told, "run_failed")[0]["value"] == FAILURE
    assert only(told, "run_restored")[0]["value"] == {"evaluations": 2, "samples": 200}
    assert [event["value"] for event in only(told, "eval_accuracy")] == QUALITIES


def test_a_run_that_died_before_its_first_checkpoint_begins_anew_and_says_its_data(tmp_path):
    first = FakeTask(QUALITIES, fail_in="open_data")
    with pytest.raises(ValueError, match="open_data"):
        start(tmp_path, first)
    died(tmp_path, FAILURE)
    second = FakeTask(QUALITIES, clock=first.clock)
    assert start(tmp_path, second) == "success"
    assert second.diary[:3] == ["build", "open_data", "train_until 100"]
    assert keys(lines(tmp_path)).index("run_restored") < keys(lines(tmp_path)).index("train_samples")


def test_a_failure_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path):
    task = FakeTask(QUALITIES)
    proper = task.save

    def save(folder):
        if task.trained == 200:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "fake.json").write_text("{")
            raise OSError("cut off")
        proper(folder)

    task.save = save
    with pytest.raises(OSError, match="cut off"):
        start(tmp_path, task)
    died(tmp_path, FAILURE)
    second = FakeTask([], clock=task.clock)
    assert start(tmp_path, second) == "success"
    assert "train_until 200" in second.diary and "train_until 100" not in second.diary


def test_checkpoints_are_written_so_many_seconds_apart_and_lie_on_the_clock(tmp_path):
    now = [0.0]
    task = FakeTask(QUALITIES)
    evaluate = task.evaluate

    def slowly():
        now[0] += 20
        return evaluate()

    task.evaluate = slowly
    start(tmp_path, task, seconds=30, clock=lambda: now[0])
    told = lines(tmp_path)
    assert [event["metadata"]["epoch_num"] for event in only(told, "checkpoint_start")] == [2]
    between = keys(told)[keys(told).index("run_start") : keys(told).index("run_stop")]
    assert between.count("checkpoint_stop") == 1
    latest = json.loads((job(tmp_path).checkpoints_folder / "latest.json").read_text())
    assert latest["evaluations"] == 2


class Stepwise(FakeTask):
    """Trains a tenth of a block in a step, is asked between steps, and warned in the second block."""

    def __init__(self, qualities, warn=lambda: None, **options):
        super().__init__(qualities, **options)
        self.interrupted = lambda: False
        self.warn, self.seconds = warn, 0.0

    def train_until(self, mark):
        while self.trained < mark.count:
            self.trained += 10
            self.seconds += 0.5
            if self.trained == 150:
                self.warn()
            if self.interrupted():
                break
        self._note(f"trained {self.trained}")
        return Progress(samples=self.trained)


def test_a_warned_run_leaves_within_its_block_and_goes_on_from_there(tmp_path):
    planned = job(tmp_path)
    planned.ranks_folder.mkdir(parents=True)
    first = Stepwise(QUALITIES, lambda: preemption.warn(planned, "SIGTERM on n1"))
    with pytest.raises(Preempted, match="SIGTERM on n1"):
        start(tmp_path, first, seconds=1e9, clock=lambda: first.seconds)
    assert first.diary[-2:] == ["trained 150", "save"]
    left = lines(tmp_path)[-1]
    assert left["key"] == "checkpoint_stop"
    died(tmp_path, {"time_ms": left["time_ms"], "deaths": "preempted", "planted": None})
    planned.ranks_folder.rename(tmp_path / "ranks" / "of the start before")
    second = Stepwise([], clock=first.clock)
    assert start(tmp_path, second, seconds=1e9) == "success"
    assert second.diary[:4] == ["build", "load", "open_data", "trained 200"]
    told = lines(tmp_path)
    assert only(told, "run_restored")[0]["value"] == {"evaluations": 1, "samples": 150}
    kept = without_lost_work(read(tmp_path / "result.txt"))
    assert [event.value for event in kept.events.of("eval_accuracy")] == QUALITIES
    assert len([*kept.events.of("block_start")]) == len(QUALITIES)
    assert restarts_of(kept).lost_seconds == 0


def test_a_run_that_is_warned_in_an_evaluation_leaves_behind_it(tmp_path):
    planned = job(tmp_path)
    planned.ranks_folder.mkdir(parents=True)
    preemption.warn(planned, "SIGTERM on n1")
    task = FakeTask(QUALITIES)
    with pytest.raises(Preempted):
        start(tmp_path, task, seconds=1e9)
    assert task.diary[-3:] == ["train_until 100", "evaluate", "save"]


def test_the_log_of_a_start_that_fails_stays_open(tmp_path):
    with pytest.raises(ValueError, match="evaluate"):
        start(tmp_path, FakeTask(QUALITIES, CountingClock(), fail_in="evaluate"))
    assert only(lines(tmp_path), "run_stop") == []


@pytest.mark.parametrize(
    ("rank", "own_seconds", "due_on_rank_0", "saved"),
    [(0, 40, True, True), (0, 20, False, False), (1, 20, True, True), (1, 40, False, False)],
)
def test_rank_0_decides_on_every_rank_whether_a_checkpoint_is_due(
    tmp_path, rank, own_seconds, due_on_rank_0, saved
):
    """Ranks that decided by their own clocks would wait for each other for ever."""
    now, trace = [0.0], []
    planned = job(tmp_path, checkpoint_seconds=30.0)
    ranks = TracedRanks(trace, rank=rank)
    checkpoints = Checkpoints(planned, ranks, lambda: now[0])
    task, log = FakeTask([]), TracedLog(trace)
    task.diary = trace
    checkpoints.begin(log)
    now[0] = own_seconds
    del trace[:]
    ranks.first = [(due_on_rank_0, None)]
    checkpoints.save_if_due(task, log, planned.schedule.marks()[0], 100)
    assert trace[0] == "from rank 0"
    assert ("save" in trace) is ("barrier" in trace) is saved


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_counts_when_all_ranks_have_written_and_its_files_are_on_the_disk(
    tmp_path, monkeypatch, rank
):
    trace = []
    planned = job(tmp_path, checkpoint_seconds=0.0)
    ranks = TracedRanks(trace, rank=rank)
    checkpoints = Checkpoints(planned, ranks)
    task, log = FakeTask([]), TracedLog(trace)
    task.diary = trace
    to_disk = lambda path: trace.append(f"{path.name} to the disk")  # noqa: E731
    monkeypatch.setattr(files, "sync_file", to_disk)
    monkeypatch.setattr(files, "sync_folder", to_disk)
    write = lambda path, content: trace.append(f"{path.name} names {content['generation']}")  # noqa: E731
    monkeypatch.setattr(files, "write_json", write)
    del trace[:]
    first, second = planned.schedule.marks()[:2]
    checkpoints.save_if_due(task, log, first, 100)
    checkpoints.save_if_due(task, log, second, 200)
    of_rank_0 = [
        ["fake.json to the disk", f"{name} to the disk", f"latest.json names {name}"] for name in "ab"
    ]
    expected = [
        [
            "from rank 0",
            "log checkpoint_start",
            "save",
            *(own if rank == 0 else []),
            "barrier",
            "log checkpoint_stop",
        ]
        for own in of_rank_0
    ]
    assert trace == [*expected[0], *expected[1]]
    assert sorted(path.name for path in planned.checkpoints_folder.iterdir()) == ["a", "b"]


def test_the_seconds_between_checkpoints_begin_with_training_and_not_with_the_start_of_the_process(tmp_path):
    now, trace = [0.0], []
    planned = job(tmp_path, checkpoint_seconds=30.0)
    checkpoints = Checkpoints(planned, OneRank(), lambda: now[0])
    now[0] = 25.0
    checkpoints.begin(TracedLog(trace))
    first, second = planned.schedule.marks()[:2]
    for now[0], mark in ((54.0, first), (55.0, second)):
        trace.append(now[0])
        checkpoints.save_if_due(FakeTask([]), TracedLog(trace), mark, 100)
    assert trace == [54.0, 55.0, "log checkpoint_start", "log checkpoint_stop"]


def test_a_checkpoint_is_on_the_disk_before_it_is_the_latest(tmp_path, monkeypatch):
    """A host that loses its power after that goes on from it."""
    synced = []
    planned = job(tmp_path, checkpoint_seconds=0.0)
    latest = planned.checkpoints_folder / "latest.json"

    def fsync(descriptor):
        target = os.fstat(descriptor)
        saved = planned.checkpoints_folder / "a" / "fake.json"
        if saved.exists() and os.path.samestat(target, saved.stat()):
            synced.append(latest.exists())

    monkeypatch.setattr(os, "fsync", fsync)
    Checkpoints(planned, OneRank()).save_if_due(FakeTask([]), TracedLog([]), planned.schedule.marks()[0], 100)
    assert synced == [False] and latest.exists()
