"""torchrun over several hosts: what is refused, and the command of each host."""

import sys
from pathlib import Path

import pytest
from torch.distributed import run

from tests.fake_campaigns import composed_config
from tests.run.fakes import job
from train_bench.launchers.torchrun.config import Config, NumaBinding, Rendezvous
from train_bench.launchers.torchrun.start import Launcher

BENCHMARK = composed_config().benchmark
RANK = (sys.executable, "-m", "train_bench.run.rank", "plan.json", "3")
TWO = {"nodes": 2, "master_addr": "10.0.0.1"}


def argv(**options):
    several = job(Path("/shared/campaign"), index=3, nodes=2, nproc_per_node=4, start_limit_seconds=120.0)
    return Launcher(Config(**(TWO | {"nproc_per_node": 4} | options))).launch(several, RANK).argv


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nproc_per_node": 0}, "launcher.nproc_per_node is 0; it has to be at least 1"),
        ({"nodes": 0}, "launcher.nodes is 0; it has to be at least 1"),
        ({"nodes": 2}, "launcher.nodes=2 needs launcher.master_addr"),
        ({"master_addr": "10.0.0.1"}, "launcher.master_addr is for several hosts"),
        ({"rendezvous": Rendezvous.c10d}, "launcher.rendezvous is for several hosts"),
        ({"interface": "eth0"}, "launcher.interface is for several hosts"),
        (TWO | {"master_port": 70000}, "launcher.master_port is 70000; allowed are 1 to 65535"),
        (TWO | {"node_rank": 1}, "type train-bench join DIR launcher.node_rank=1"),
        (TWO | {"local_addr": "10.0.0.2"}, "launcher.local_addr is for train-bench join"),
    ],
)
def test_what_makes_no_sense_together_is_refused_by_one_sentence(options, word):
    reason = Launcher(Config(**options)).refuse(BENCHMARK)
    assert reason is not None
    assert word in reason
    assert reason.endswith(".")


def test_several_ranks_on_several_hosts_are_not_refused():
    assert Launcher(Config(**TWO, nproc_per_node=4, rendezvous=Rendezvous.c10d)).refuse(BENCHMARK) is None


@pytest.mark.parametrize("binding", [None, *NumaBinding])
def test_ranks_are_bound_beside_their_gpus_where_that_is_asked(binding):
    bound = [word for word in argv(numa_binding=binding) if "numa" in word]
    assert bound == ([] if binding is None else [f"--numa-binding={binding.value}"])
    parsed = run.get_args_parser().parse_args([*bound, "script.py"])  # as this torch takes it
    assert parsed.numa_binding == (binding and binding.value)


def test_every_host_but_the_first_is_told_how_to_join():
    assert Config().joining == ()
    assert Config(nodes=3, master_addr="10.0.0.1").joining == (
        "launcher.node_rank=1",
        "launcher.node_rank=2",
    )


def test_a_static_rendezvous_gives_each_host_its_number():
    common = (sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=static")
    rank = ("-m", "train_bench.run.rank", "plan.json", "3")
    for node_rank in (0, 1):
        assert argv(node_rank=node_rank) == (
            *(*common, "--rdzv-endpoint=10.0.0.1:29500", f"--node-rank={node_rank}"),
            *("--rdzv-conf=timeout=120", "--log-dir=/dev/null", "--nproc-per-node=4", *rank),
        )


def test_at_a_c10d_rendezvous_host_0_is_told_that_it_serves_it():
    first = argv(rendezvous=Rendezvous.c10d)
    second = argv(rendezvous=Rendezvous.c10d, node_rank=1, local_addr="10.0.0.2")
    assert "--rdzv-conf=is_host=1,join_timeout=120" in first
    assert "--local-addr=10.0.0.1" in first
    assert "--rdzv-conf=is_host=0,join_timeout=120" in second
    assert "--local-addr=10.0.0.2" in second
    assert "--rdzv-id=campaign_3" in first
    assert "--rdzv-id=campaign_3" in second


def test_the_interface_is_told_to_gloo_and_nccl():
    env = Launcher(Config(**TWO, interface="eth1")).launch(job(Path("out"), nodes=2), RANK).env
    assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == "eth1"
