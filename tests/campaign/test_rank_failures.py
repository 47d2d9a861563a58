"""Real ranks that are too few, hang, are stopped, or lose their launcher: every run ends within its limits,
with its cause in the record, and leaves no process behind."""

import functools
import json
import os
import re
import shlex
import signal
import socket
import threading

import pytest

from tests.command_line import processes, wait_for
from tests.fake_campaigns import Diary, begin, make, run_all
from train_bench.campaign import data, one_run
from train_bench.campaign.opened import Campaign
from train_bench.errors import LaunchError
from train_bench.launcher import Launch
from train_bench.launchers.torchrun.start import Launcher as Torchrun
from train_bench.observers.limits import RunWatchdog

pytestmark = pytest.mark.full  # real ranks, and limits of time

TWO = ("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")


class ByHand(Torchrun):
    """Starts ranks with a shell: one for each of `environments`, which say what torchrun would say. It waits
    for all and fails if one does, as launchers do."""

    def __init__(self, *environments):
        self.environments = environments

    def launch(self, job, rank_argv):
        lines = [
            f'{variables} {shlex.join(rank_argv)} & ranks="$ranks $!"' for variables in self.environments
        ]
        waiting = "for rank in $ranks; do wait $rank || exit 1; done"
        return Launch(argv=("sh", "-c", "\n".join([*lines, waiting])))


def planned(tmp_path, *overrides):
    prepared = f"data_dir={tmp_path.parent / 'resnet_mini'}"  # once for all
    plan = make(f"output={tmp_path / 'campaign'}", prepared, "device=cpu", "seed=1", "runs=1", *overrides)
    data.prepare(Campaign.of(plan))
    begin(plan)
    return plan


def run(plan, launcher=None, meanwhile=lambda: None):
    """Run the campaign while `meanwhile` happens; returns the sentence with which it stopped."""
    saboteur = threading.Thread(target=meanwhile)
    saboteur.start()
    launcher = launcher or Torchrun(Campaign.of(plan).launcher_config)
    with pytest.raises(LaunchError) as stopped:
        run_all(plan, launcher, Diary(), retry_failed=False)
    saboteur.join()
    wait_for(lambda: not processes_of(plan))
    return str(stopped.value)


def record(plan):
    return json.loads((plan.jobs[0].folder / "record_0.json").read_text())


def processes_of(plan):
    return [number for number, line in processes().items() if str(plan.jobs[0].folder) in line]


def signal_rank(plan, rank, number):
    """Once the run has evaluated."""
    log = plan.jobs[0].partial_log
    wait_for(lambda: log.exists() and "eval_accuracy" in log.read_text())
    state = json.loads((plan.jobs[0].ranks_folder / f"rank_{rank}.json").read_text())
    os.kill(state["pid"], number)
    return state["pid"]


def worlds(*ranks, size):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free.getsockname()[1]} WORLD_SIZE={size}"
    return ByHand(*(f"RANK={rank} LOCAL_RANK={rank} {meet}" for rank in ranks))


def test_a_launcher_that_silently_starts_fewer_ranks_fails_before_the_clock(tmp_path):
    plan = planned(tmp_path, "launcher=torchrun", "launcher.nproc_per_node=4")
    sentence = run(plan, worlds(0, 1, size=2))
    assert "4 ranks were requested, but 2 answered." in sentence
    assert plan.jobs[0].result_file.read_text() == ""
    assert record(plan)["deaths"] == ["rank 0 failed: 4 ranks were requested, but 2 answered."]


def test_a_launcher_that_waits_for_missing_ranks_fails_before_the_clock_within_the_limit(
    tmp_path, monkeypatch
):
    plan = planned(tmp_path, "launcher=torchrun", "launcher.nproc_per_node=4", "start_limit_seconds=500")
    arrived = plan.jobs[0].ranks_folder / "arrived"

    def clock():
        """The limit is over when two have come, however slowly they did."""
        return 501.0 if arrived.exists() and len(list(arrived.iterdir())) == 2 else 0.0

    monkeypatch.setattr(one_run, "RunWatchdog", functools.partial(RunWatchdog, clock=clock))
    sentence = run(plan, worlds(0, 1, size=4))
    host = os.uname().nodename
    reason = f"4 ranks were requested, but only 2 started within 500 s (start_limit_seconds): 2 on {host}"
    assert reason in sentence
    assert plan.jobs[0].result_file.read_text() == ""
    assert record(plan)["deaths"][0] == reason


def test_a_rank_that_is_stopped_is_noticed_by_the_others(tmp_path):
    plan = planned(tmp_path, *TWO, "stall_limit_seconds=10")
    sentence = run(plan, meanwhile=lambda: signal_rank(plan, 1, signal.SIGSTOP))
    assert "rank 0 failed: waited in " in sentence
    assert "for 10 s (stall_limit_seconds)" in sentence
    assert re.search(r"rank 0 waited in collective \d+ of default_pg \(gloo:", sentence)
    assert "; nothing is known of rank 1." in sentence
    assert record(plan)["status"] == "died"
    stacks = (plan.jobs[0].ranks_folder / "rank_0.stderr").read_text()
    assert "timed_run" in stacks, "where the rank was"


def test_the_only_rank_that_is_stopped_is_noticed_by_its_parent(tmp_path):
    plan = planned(tmp_path, "stall_limit_seconds=10")
    launcher = Campaign.of(plan).launcher
    sentence = run(plan, launcher, meanwhile=lambda: signal_rank(plan, 0, signal.SIGSTOP))
    assert re.search(r"no heartbeat of rank 0 for [2-9]\d+ s \(stall_limit_seconds\)", sentence)
    assert record(plan)["status"] == "died"


@pytest.mark.parametrize("moment", ["ranks import torch", "the run has evaluated"])
def test_when_the_launcher_dies_its_ranks_end_with_it(tmp_path, moment):
    plan = planned(tmp_path, *TWO)
    job = plan.jobs[0]

    def has_come():
        if moment == "ranks import torch":
            return len(list(job.ranks_folder.glob("arrived/*"))) == 2
        return job.partial_log.exists() and "eval_accuracy" in job.partial_log.read_text()

    def kill_the_agent():
        wait_for(has_come)
        os.kill(min(processes_of(plan)), signal.SIGKILL)

    sentence = run(plan, meanwhile=kill_the_agent)
    assert "torchrun itself killed by SIGKILL" in sentence
    assert record(plan)["deaths"] == ["torchrun itself killed by SIGKILL"]


def test_a_log_has_one_writer_even_if_a_launcher_starts_two_worlds(tmp_path):
    plan = planned(tmp_path, "benchmark.evaluation.until=2")
    alone = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1"
    run(plan, ByHand(alone, alone))
    log = plan.jobs[0].result_file
    assert log.read_text().count('"init_start"') == 1
    complaint = (plan.jobs[0].ranks_folder / "rank_0.stderr").read_text()
    assert "Another process writes" in complaint
