"""Whoever started the ranks: one that is killed is told, a launcher that is killed takes its ranks along, and no
process or memory is left."""

import os
import signal
from pathlib import Path

import pytest

from tests import needs
from tests.campaign.test_rank_failures import planned, processes_of, run, signal_rank
from train_bench.campaign.opened import Campaign

pytestmark = pytest.mark.full

OTHERS = ("horovod", "deepspeed")


def two_ranks(tmp_path, launcher):
    overrides = (f"launcher={launcher}", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
    return planned(tmp_path, *overrides)


def shared_memory():
    """What DeepSpeed's ranks share by name."""
    return {path.name for path in Path("/dev/shm").glob("deepspeed_*")}


def launcher_of(plan):
    return Campaign.of(plan).launcher


@pytest.mark.parametrize("launcher", needs.launchers(OTHERS))
def test_a_killed_rank_ends_the_run_and_is_told(tmp_path, launcher):
    plan, before = two_ranks(tmp_path, launcher), shared_memory()
    said = run(plan, launcher_of(plan), lambda: signal_rank(plan, 1, signal.SIGKILL))
    assert "killed by SIGKILL" in said
    assert shared_memory() <= before


@pytest.mark.parametrize("launcher", needs.launchers(OTHERS))
def test_a_launcher_that_is_killed_takes_its_ranks_along(tmp_path, launcher):
    plan = two_ranks(tmp_path, launcher)

    def kill_the_launcher():
        signal_rank(plan, 1, 0)  # nothing but wait until the run goes on
        os.kill(min(processes_of(plan)), signal.SIGKILL)

    said = run(plan, launcher_of(plan), kill_the_launcher)
    assert "itself killed by SIGKILL" in said
