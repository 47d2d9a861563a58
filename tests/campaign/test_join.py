"""A host that joins a campaign, in a pod of an operator."""

import pytest

from tests.command_line import typed
from tests.fake_campaigns import begin, make
from train_bench.campaign import join
from train_bench.campaign.opened import Campaign

OPERATOR = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "job-0.job",
    "PET_MASTER_PORT": "29400",
}
PYTORCH_JOB = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


@pytest.fixture
def campaign(tmp_path):
    """A campaign on two hosts that was begun in a master pod, which knows itself by another name."""
    hosts = ("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=10.0.0.1")
    plan = make(f"output={tmp_path / 'c'}", "seed=1", *hosts)
    begin(plan)
    return Campaign.of(plan)


@pytest.mark.parametrize(("environ", "address"), [(OPERATOR, "job-0.job"), (PYTORCH_JOB, "job-master-0")])
def test_a_pod_knows_its_host_and_where_host_0_is(campaign, environ, address):
    host, changes = join._which(campaign, [*join._of_pod(campaign, environ)])
    assert host == 1
    assert changes == {"node_rank": "1", "master_addr": address}, "the port is that of the plan"
    assert list(join._of_pod(campaign, {})) == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"PET_NNODES": "3"}, "PET_NNODES is 3 in this pod, and the plan has 2 host(s) with 2 rank(s)"),
        (
            {"PET_NODE_RANK": "0"},
            "This pod is host 0, which carries out the campaign itself: train-bench run",
        ),
        ({"PET_NODE_RANK": "2"}, "The number of this host is missing"),
        ({"PET_MASTER_ADDR": "--x"}, "launcher.master_addr"),
    ],
)
def test_a_pod_that_is_not_in_the_plan_is_told_so(campaign, monkeypatch, more, sentence):
    for name, value in (OPERATOR | more).items():
        monkeypatch.setenv(name, value)
    answer = typed("join", str(campaign.folder))
    assert answer.returncode == 2
    assert sentence in answer.stderr
