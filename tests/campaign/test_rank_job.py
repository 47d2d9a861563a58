"""Ranks that do other work than a timed run."""

from pathlib import Path

import pytest

from tests.fake_campaigns import make, open_plan
from train_bench.campaign import rank_job
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import RANK_MODULES
from train_bench.errors import LaunchError, RequestError


@pytest.fixture(autouse=True)
def _known_work(monkeypatch):
    monkeypatch.setitem(RANK_MODULES, "look", "tests.campaign.rank_work")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.full
def test_every_rank_does_the_work_and_there_is_no_result(tmp_path):
    planned = Campaign.of(
        make("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
    )
    job = rank_job.carry_out(planned, "look", {}, tmp_path / "looked")
    assert [files.read_json(job.folder / f"seen_{rank}.json")["ranks"] for rank in range(2)] == [2, 2]
    assert not list(job.folder.glob("result_*"))


def test_a_rank_that_fails_at_its_work_is_named_with_what_it_said(tmp_path):
    with pytest.raises(LaunchError, match="look failed: rank 0 failed: RuntimeError: the weights are upside"):
        rank_job.carry_out(Campaign.of(make()), "look", {"fails": 0}, tmp_path / "looked")


def test_a_folder_with_other_work_cannot_go_on_as_a_campaign(tmp_path):
    job = rank_job.carry_out(Campaign.of(make()), "look", {}, tmp_path / "looked")
    with pytest.raises(RequestError, match="for the work 'look', not for a campaign"):
        open_plan(job.folder)


def test_ranks_that_wait_for_other_hosts_to_join_are_refused_before_anything_is_started():
    planned = Campaign.of(make("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=localhost"))
    with pytest.raises(RequestError, match=r"look starts all processes from here.*choose launcher.nodes=1"):
        rank_job.refuse(planned, "look")
