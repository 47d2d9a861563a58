"""What a rank does from its first line to its last, and what it leaves behind for whoever finds it dead."""

import json
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from tests.fake_campaigns import begin, make
from tests.references.configs import composed
from tests.run.fakes import OneRank, TracedRanks, job
from train_bench.core import plugins
from train_bench.core.job import plan_digest
from train_bench.errors import LaunchError
from train_bench.run import events, handshake, rank, timed_run

PROGRAM = """
import sys
from pathlib import Path
from tests.run.fakes import job
from train_bench.run.rank_state import RankState
state = RankState(job(Path(sys.argv[1])), 0)
for said in sys.argv[2:]:
    state.write(said)
"""


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ((), "running"),
        (("finished",), "finished"),
        (("failed", "finished"), "failed"),
        (("finished", "failed"), "finished"),
        (("finished", "terminated"), "finished"),
        (("terminated",), "terminated"),
    ],
)
def test_what_befalls_a_rank_after_its_result_is_whole_takes_nothing_away(tmp_path, states, left):
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), *states], check=True)
    state = json.loads((job(tmp_path).ranks_folder / "rank_0.json").read_text())
    assert state["state"] == left


@pytest.mark.full
def test_a_rank_that_cannot_join_says_why_where_its_parent_looks(tmp_path):
    planned = make(f"output={tmp_path / 'campaign'}", "runs=1", "seed=1", "launcher=slurm")
    begin(planned)
    arguments = ["-m", "train_bench.run.rank", str(tmp_path / "campaign" / "plan.json"), "0"]
    of_slurm = {"TRAIN_BENCH_STARTER": "srun", "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    ended = subprocess.run(
        [sys.executable, *arguments], env=os.environ | of_slurm, capture_output=True, text=True, check=False
    )
    (arrived,) = (planned.jobs[0].ranks_folder / "arrived").iterdir()
    assert ended.returncode == 1
    assert json.loads(arrived.read_text()) == {"error": "1 ranks were requested, but srun started 3."}


CORES = 12


class Joined(TracedRanks):
    """A rank that tells what was promised to it when it joins, and when it leaves."""

    device = "cpu"
    watched = False

    def leave(self):
        self.trace.append("leave")

    def __getattr__(self, name):
        return None


class TracedWatchdog:
    """Counts the calls of a rank between `start` and `stop`."""

    def __init__(self, trace, limit_seconds, path, stalled):
        self.trace, self.limit_seconds = trace, limit_seconds

    def of(self, parallel):
        parallel.watched = True
        return parallel

    def start(self):
        self.trace.append(f"watch for {self.limit_seconds:g} s")

    def stop(self):
        self.trace.append("watch no longer")


@pytest.fixture
def trace(monkeypatch):
    """What `main` does with the process, torch and the other ranks, in this process, on a host with 12 cores."""
    trace = []
    for name in ("end_with_parent", "keep_freed_memory", "end_process"):
        monkeypatch.setattr(rank, name, lambda name=name: trace.append(name))
    monkeypatch.setattr(rank, "arrive", lambda job: trace.append("arrive"))
    monkeypatch.setattr(rank.flight_recorder, "switch_on", lambda: None)
    monkeypatch.setattr(
        rank, "RankState", lambda job, number: SimpleNamespace(write=trace.append, fail=trace.append)
    )
    monkeypatch.setattr(sys, "argv", ["rank", "plan.json", "0"])
    mask = frozenset(range(CORES))
    monkeypatch.setattr(rank.cores, "limits", lambda: rank.cores.CoreLimits(mask=mask))
    monkeypatch.setattr(rank.cores, "_rank", None)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: trace.append(f"{count} threads"))
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda wanted: trace.append("deterministic"))
    monkeypatch.setattr(handshake, "handshake", lambda job, parallel: trace.append("handshake"))
    monkeypatch.setattr(rank, "RankWatchdog", partial(TracedWatchdog, trace))
    monkeypatch.setattr(plugins, "module_of", lambda *args: "launcher")
    monkeypatch.setattr(rank, "new_task", lambda job: SimpleNamespace(close=lambda: trace.append("close")))
    monkeypatch.setitem(
        sys.modules,
        "launcher.parallel",
        SimpleNamespace(join=lambda job: (trace.append("join"), Joined(trace, size=job.world_size))[1]),
    )
    return trace


def carried_out(monkeypatch, trace, planned, error=None):
    def work(job, task, parallel):
        trace.append("watched work" if parallel.watched else "work")
        if error is not None:
            raise error

    monkeypatch.setattr(rank, "read_job", lambda path, index: planned)
    rank.main(work)
    return trace


@pytest.mark.parametrize(
    ("ranks", "wanted", "given"),
    [(1, None, 12), (2, None, 6), (3, None, 4), (5, None, 2), (16, None, 1), (3, 7, 7), (1, 1, 1)],
)
def test_a_rank_computes_with_the_threads_that_were_planned_or_its_share_of_the_hosts_cores(
    tmp_path, monkeypatch, trace, ranks, wanted, given
):
    """Those of another host have cores of their own."""
    planned = job(tmp_path, nproc_per_node=ranks, nodes=2, threads_per_rank=wanted)
    assert [one for one in carried_out(monkeypatch, trace, planned) if "threads" in one] == [
        f"{given} threads"
    ]


def test_no_rank_works_before_all_have_shaken_hands_and_each_leaves_the_group_before_it_ends(
    tmp_path, monkeypatch, trace
):
    assert carried_out(monkeypatch, trace, job(tmp_path)) == [
        *("end_with_parent", "keep_freed_memory", "arrive", "join", "handshake", "watch for 60 s"),
        *("gather", "from rank 0", f"{CORES} threads", "watched work", "finished", "close"),
        *("leave", "watch no longer", "end_process"),
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [(LaunchError("The data are gone."), "The data are gone."), (ValueError("gone"), "ValueError: gone")],
)
def test_a_rank_whose_work_fails_says_why_and_is_not_finished(
    tmp_path, monkeypatch, trace, error, said, capsys
):
    monkeypatch.setattr(rank.flight_recorder, "dump", lambda job, number: None)
    carried_out(monkeypatch, trace, job(tmp_path), error)
    assert trace[-6:] == ["watched work", "close", said, "leave", "watch no longer", "end_process"]
    assert ("Traceback" in capsys.readouterr().err) is isinstance(error, ValueError)


def test_a_rank_that_runs_out_of_memory_says_what_reduces_it(tmp_path, monkeypatch, trace):
    carried_out(monkeypatch, trace, job(tmp_path), torch.OutOfMemoryError("CUDA out of memory."))
    assert trace[-4].startswith("OutOfMemoryError: CUDA out of memory. Reduce the memory of a rank: ")


def test_a_rank_that_stalls_leaves_its_collectives_before_it_says_so(tmp_path, monkeypatch, trace):
    class Stalling(TracedWatchdog):
        def __init__(self, trace, limit_seconds, path, stalled):
            super().__init__(trace, limit_seconds, path, stalled)
            self.start = lambda: stalled("hung")

    monkeypatch.setattr(rank, "RankWatchdog", partial(Stalling, trace))
    monkeypatch.setattr(rank.flight_recorder, "dump", lambda job, number: trace.append(f"dump {number}"))
    carried_out(monkeypatch, trace, job(tmp_path))
    assert trace[trace.index("handshake") + 1 :][:2] == ["dump 0", "hung"]


@pytest.mark.parametrize("wanted", [False, True])
def test_operators_are_deterministic_before_the_rank_joins_where_the_plan_says_so(
    tmp_path, monkeypatch, trace, wanted
):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    carried_out(monkeypatch, trace, job(tmp_path, deterministic=wanted))
    assert ("deterministic" in trace[: trace.index("join")]) is wanted
    assert torch.backends.cudnn.benchmark is not wanted
    assert os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None) == (":4096:8" if wanted else None)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("failed_ms", [0, 5_000_000_000_000])
def test_rank_0_alone_has_a_log_whose_clock_goes_on_behind_an_earlier_start(
    tmp_path, monkeypatch, number, failed_ms
):
    given, ended = {}, []

    def timed(task, planned, parallel, log, *, stopped, checkpoints):
        given.update(log=log, job=planned)
        stopped()

    monkeypatch.setattr(timed_run, "timed_run", timed)
    monkeypatch.setattr(
        rank, "_task", lambda job, config: SimpleNamespace(close=lambda: ended.append("task"))
    )
    monkeypatch.setattr(
        rank,
        "_config",
        lambda job: SimpleNamespace(hyperparameters=SimpleNamespace(logged=lambda: {"momentum": 1})),
    )
    monkeypatch.setattr(rank, "_checkpoints", lambda job, parallel: SimpleNamespace(failed_ms=failed_ms))
    monkeypatch.setattr(
        events,
        "Log",
        lambda path, clock: SimpleNamespace(path=path, clock=clock, close=lambda: ended.append("log")),
    )
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["rank", str(plan), "0"])
    states, parallel = [], OneRank()
    parallel.rank, parallel.device = number, torch.device("cpu")
    rank._run(job(tmp_path), parallel, SimpleNamespace(write=states.append))
    partial = job(tmp_path).partial_log
    assert given["log"].path == (partial if number == 0 else None)
    assert partial.exists() is (number == 0 and not failed_ms), "claimed once, by rank 0"
    assert (tmp_path / "system.json").exists() is (number == 0)
    assert (given["log"].clock() >= failed_ms > 0) is (failed_ms > 0)
    assert (states, ended) == (["finished"], ["log", "task"])
    assert given["job"].config["hyperparameters"] == {"momentum": 1}
    assert given["job"].announcement["plan_digest"] == plan_digest({})


@pytest.mark.parametrize(
    ("variant", "changes", "timed"),
    [
        ("resnet_mini", {}, True),
        ("unet3d_mini", {"work": "profile"}, True),
        ("resnet_mini", {"deterministic": True}, False),
        ("resnet_mini", {"keep_weights": True}, False),
        ("resnet_mini", {"work": "serve"}, False),
        ("maskrcnn_mini", {}, False),
    ],
)
def test_cudnn_times_convolutions_of_fixed_shapes_where_no_result_has_to_be_repeated(
    tmp_path, monkeypatch, variant, changes, timed
):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not timed)
    monkeypatch.setattr(rank, "_module", lambda job, file: SimpleNamespace(Task=lambda config: config))
    config = composed(variant)
    assert rank._task(job(tmp_path, **changes), config) is config
    assert torch.backends.cudnn.benchmark is timed
