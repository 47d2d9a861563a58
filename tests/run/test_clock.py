"""The order around the clock: barriers before its lines, no data before they are written, nothing else within them.

Collectives, lines, and what the task does are written into one trace, so that a barrier that is missing, or on the
other side of a line, is another trace.
"""

import pytest

from tests.run.fakes import FakeTask, OneRank, TracedLog, TracedRanks, job
from train_bench.errors import LaunchError
from train_bench.progress import Progress
from train_bench.quality import Quality
from train_bench.run import caches, processors, replicas
from train_bench.run.checkpoints import Checkpoints
from train_bench.run.clock import ABORTED, SUCCESS, Clock
from train_bench.run.timed_run import timed_run


@pytest.fixture
def trace():
    return []


@pytest.fixture(autouse=True)
def _traced_calls(monkeypatch, trace):
    """What timed_run does around the clock, besides task, ranks and log."""

    def drop(*, wanted, command):
        trace.append("drop caches" if wanted else "leave caches")
        return wanted

    monkeypatch.setattr(caches, "drop", drop)
    monkeypatch.setattr(replicas, "compare", lambda parallel: trace.append("compare replicas"))
    monkeypatch.setattr(processors, "read_cpu_times", lambda: trace.append("read CPU times"))


def traced_task(trace, qualities=(0.95,), **options):
    task = FakeTask(list(qualities), **options)
    task.diary = trace
    inform = task.samples_taken
    task.samples_taken = lambda: (trace.append("samples_taken"), inform())[1]
    return task


BEFORE = [
    "log cache_clear",
    "log announce",
    *("barrier", "log init_start"),
    *("build", "log initialized"),
    *("barrier", "log init_stop"),
    *("barrier", "read CPU times", "log run_start", "barrier"),
]
"""Of every rank: the barrier behind `run_start` keeps the others from data until rank 0 has written the line."""

BLOCK = [
    *("log block_start", "train_until 100"),
    *("log block_stop", "log extras", "log eval_start"),
    *("evaluate", "from rank 0", "log accuracy", "log eval_stop"),
]

AFTER = [
    *("read CPU times", "stopped"),
    *("gather", "log processor_wait"),
    *("gather", "log peak_memory"),
    *("samples_taken", "gather", "log data_wait"),
    *("gather", "log order"),
    "log learning_rates",
    *("compare replicas", "log replicas"),
    *("gather", "log loaded_code"),
]
"""Looking back, which others may spoil and which takes time, comes when the clock stands and the result is complete."""


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_passes_barriers_before_and_behind_the_start_and_does_nothing_else_in_the_window(
    tmp_path, trace, rank
):
    ranks = TracedRanks(trace, rank=rank)
    stopped = lambda: trace.append("stopped")  # noqa: E731
    status = timed_run(traced_task(trace), job(tmp_path), ranks, TracedLog(trace), stopped)
    assert status == SUCCESS
    window = ["open_data", "log data", *BLOCK, "log run_stop"]
    assert trace == ["leave caches", *BEFORE, *window, *AFTER]


def test_a_run_continued_from_a_checkpoint_opens_data_when_all_ranks_are_restored(tmp_path, trace):
    planned = job(tmp_path, checkpoint_seconds=0.0)
    ranks = TracedRanks(trace)
    ranks.first = [({"generation": None, "evaluations": 0, "samples": 0}, {"failures": [], "now_ms": 5})]
    checkpoints = Checkpoints(planned, ranks)
    ranks.first = None
    timed_run(traced_task(trace), planned, ranks, TracedLog(trace), checkpoints=checkpoints)
    until = trace.index("open_data") + 1
    assert trace[:until] == ["from rank 0", "read CPU times", "build", "barrier", "open_data"]
    assert "log run_start" not in trace


@pytest.mark.parametrize("qualities", [[0.1, 0.95], [0.1, 0.1, 0.1, 0.1]], ids=["reached", "schedule over"])
def test_no_checkpoint_is_written_between_the_deciding_evaluation_and_the_end(tmp_path, trace, qualities):
    planned = job(tmp_path, checkpoint_seconds=0.0)
    ranks = TracedRanks(trace)
    timed_run(
        traced_task(trace, qualities),
        planned,
        ranks,
        TracedLog(trace),
        checkpoints=Checkpoints(planned, ranks),
    )
    assert trace.count("save") == len(qualities) - 1
    assert trace[trace.index("log run_stop") - 1] == "log eval_stop"


@pytest.mark.parametrize(
    ("rank", "local_rank", "said"),
    [(0, 0, "drop caches"), (1, 1, "leave caches"), (8, 0, "drop caches"), (9, 1, "leave caches")],
)
def test_one_rank_of_every_host_drops_its_caches_before_any_rank_builds(
    tmp_path, trace, rank, local_rank, said
):
    ranks = TracedRanks(trace, rank=rank, local_rank=local_rank, size=16)
    timed_run(traced_task(trace), job(tmp_path, drop_caches=True), ranks, TracedLog(trace))
    assert trace[0] == said and trace.index("barrier") < trace.index("build")
    assert not {"drop caches", "leave caches"} & set(trace[1:])


class Failing(TracedRanks):
    """Another rank is lost at the barrier of this number, counted from 1."""

    def __init__(self, trace, at):
        super().__init__(trace)
        self.at = at

    def barrier(self):
        super().barrier()
        if self.trace.count("barrier") == self.at:
            raise RuntimeError("Connection closed by peer")


@pytest.mark.parametrize(("at", "aborted"), [(1, False), (2, False), (3, False), (4, True)])
def test_a_rank_that_is_lost_at_the_start_aborts_a_clock_that_runs_and_no_other(tmp_path, trace, at, aborted):
    with pytest.raises(RuntimeError, match="closed by peer"):
        timed_run(traced_task(trace), job(tmp_path), Failing(trace, at), TracedLog(trace))
    assert ("log run_start" in trace) == ("log run_stop" in trace) == aborted
    assert "open_data" not in trace


def started(trace, ranks, target=None):
    clock = Clock(TracedLog(trace), ranks, target or job(None).target, whose="This run")
    clock.init_start()
    clock.init_stop()
    clock.run_start(job(None).schedule.marks(), lambda: None)
    return clock


@pytest.mark.parametrize(
    ("own", "of_rank_0", "decided"), [(0.1, 0.95, True), (0.95, 0.1, False), (float("nan"), 0.1, False)]
)
def test_what_rank_0_measured_decides_on_every_rank(trace, own, of_rank_0, decided):
    ranks = TracedRanks(trace, rank=1)
    clock = started(trace, ranks)
    clock.block_start()
    clock.eval_start(Progress(samples=100))
    ranks.first = [Quality(metrics={"top1": of_rank_0})]
    assert clock.report(Quality(metrics={"top1": own}), "report()") is decided
    assert clock.is_decided is decided


def test_what_rank_0_cannot_compare_ends_every_rank(trace):
    ranks = TracedRanks(trace, rank=1)
    clock = started(trace, ranks)
    clock.block_start()
    clock.eval_start(Progress(samples=100))
    ranks.first = [Quality(metrics={})]
    with pytest.raises(LaunchError, match="This run cannot be judged"):
        clock.report(Quality(metrics={"top1": 0.95}), "report()")


def test_counters_are_read_when_all_ranks_are_here_and_the_clock_stands(trace):
    clock = Clock(TracedLog(trace), TracedRanks(trace), job(None).target, whose="This run")
    clock.init_start()
    clock.init_stop()
    del trace[:]
    running = []
    read = lambda: (trace.append("read"), running.append(clock.is_running))[1]  # noqa: E731
    clock.run_start(job(None).schedule.marks(), read)
    assert trace == ["barrier", "read", "log run_start", "barrier"]
    assert running == [False] and clock.is_running


def test_a_clock_that_stands_is_not_aborted(trace):
    clock = Clock(TracedLog(trace), OneRank(), job(None).target, whose="This run")
    clock.abort()
    clock.init_start()
    clock.abort()
    assert trace == ["log init_start"] and clock.status == ABORTED
    clock = started([], OneRank())
    clock.abort()
    assert not clock.is_running


def test_a_run_that_fails_behind_its_last_evaluation_is_aborted_although_it_reached_the_target(trace):
    clock = started(trace, OneRank())
    clock.block_start()
    clock.eval_start(Progress(samples=100))
    clock.report(Quality(metrics={"top1": 0.95}), "report()")
    assert (clock.status, clock.is_running) == (SUCCESS, True)
    clock.abort()
    assert (clock.status, clock.is_running) == (ABORTED, False)
    assert trace[-2:] == ["log eval_stop", "log run_stop"]
