"""Parent side of `launcher=deepspeed`."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests.references.configs import bert, resnet
from tests.run.fakes import job
from train_bench.launcher import Death
from train_bench.launchers.deepspeed.config import Config, Starter
from train_bench.launchers.deepspeed.start import Launcher
from train_bench.launchers.torchrun.config import Config as TorchrunConfig
from train_bench.launchers.torchrun.start import Launcher as Torchrun

RANK = (sys.executable, "-m", "train_bench.run.rank", "plan.json", "0")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """As where DeepSpeed and pdsh are installed, whether they are or not."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def refusal(benchmark="resnet_mini", **options):
    return Launcher(Config(**options)).refuse(resnet(benchmark))


def test_its_launcher_starts_as_many_ranks_as_were_asked_and_reads_no_hostfile_of_the_system():
    argv = Launcher(Config(nproc_per_node=3)).launch(job(Path("out"), nproc_per_node=3), RANK).argv
    assert argv[:3] == (sys.executable, "-m", "deepspeed.launcher.runner")
    assert {"--hostfile=/dev/null", "--num_nodes=1", "--num_gpus=3"} <= set(argv)
    assert argv[-4:] == ("--module", "train_bench.run.rank", "plan.json", "0")


def test_two_runs_do_not_meet_at_one_port():
    def port(**changes):
        argv = Launcher(Config()).launch(job(**{"folder": Path("out"), **changes}), RANK).argv
        return next(word for word in argv if word.startswith("--master_port="))

    assert len({port(), port(index=1), port(folder=Path("other"))}) == 3
    assert port() == port()


def test_below_torchrun_its_command_is_torchruns():
    planned = job(Path("out"), nproc_per_node=2)
    ours = Launcher(Config(nproc_per_node=2, starter=Starter.torchrun))
    theirs = Torchrun(TorchrunConfig(nproc_per_node=2))
    assert ours.launch(planned, RANK) == theirs.launch(planned, RANK)
    assert ours.deaths(-15, "") == theirs.deaths(-15, "")


def test_without_deepspeed_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "`make deepspeed`" in str(Config().refuse_installation())


def test_without_pdsh_other_hosts_are_out_of_reach(monkeypatch):
    assert Config(nodes=2).refuse_installation() is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "pdsh, which is not installed" in str(Config(nodes=2).refuse_installation())
    assert Config(nodes=2, starter=Starter.torchrun).refuse_installation() is None


def test_gpus_that_its_launcher_would_not_choose_are_refused_to_it_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert "ignores CUDA_VISIBLE_DEVICES=2,3" in refusal()
    assert refusal(starter=Starter.torchrun) is None


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_pieces_of_tensors_are_refused_to_optimizers_that_look_at_whole_ones(stage):
    assert "this benchmark uses lars" in refusal("resnet", zero_stage=stage)
    named_nowhere = Launcher(Config(zero_stage=stage)).refuse(bert("bert_mini"))
    assert named_nowhere is not None and "this benchmark uses none of them" in named_nowhere
    assert refusal("resnet_sgd", zero_stage=stage) is None
    assert refusal("resnet", zero_stage=0) is None


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"zero_stage": 4}, "zero_stage is 4; it may be 0, 1, 2 or 3"),
        ({"nproc_per_node": 0}, "at least 1"),
        ({"nodes": 2}, "needs launcher.hostfile=FILE"),
        ({"nodes": 2, "hostfile": "/nowhere/at/all"}, "/nowhere/at/all cannot be read"),
        ({"nodes": 2, "hostfile": "/tmp"}, "cannot be read"),
        ({"hostfile": "x"}, "for several hosts"),
        ({"hostfile": "x", "starter": Starter.torchrun}, "torchrun reads none"),
        ({"master_addr": "n1"}, "launcher.master_addr is for launcher.starter=torchrun"),
        ({"nproc_per_node": 0, "starter": Starter.torchrun}, "at least 1"),
    ],
)
def test_it_refuses_what_it_cannot_start(options, part):
    assert part in refusal(**options)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("n1 slots=2\n", "offers n1 slots=2; 2 hosts with 2 slots each are needed"),
        ("n1 slots=2\nn2 slots=1\n", "2 hosts with 2 slots each are needed"),
        ("", "offers nothing"),
        ("n1\n", "has the line 'n1'"),
        ("n1 slots=2\nn1 slots=2\n", "names n1 twice"),
    ],
)
def test_a_hostfile_has_to_offer_what_is_asked(tmp_path, text, part):
    hostfile = tmp_path / "hosts"
    hostfile.write_text(text)
    assert part in refusal(nodes=2, nproc_per_node=2, hostfile=str(hostfile))


def test_a_hostfile_that_offers_enough_is_handed_on(tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\nn1 slots=4\n\nn2 slots=2\nn3 slots=1\n")
    options = {"nodes": 2, "nproc_per_node": 2, "hostfile": str(hostfile)}
    assert refusal(**options) is None
    argv = Launcher(Config(**options)).launch(job(Path("out"), nodes=2, nproc_per_node=2), RANK).argv
    assert {f"--hostfile={hostfile}", "--num_nodes=2", "--num_gpus=2"} <= set(argv)


def test_other_hosts_join_by_hand_below_torchrun_only():
    assert Config(nodes=2).joining == ()
    assert Config(nodes=2, starter=Starter.torchrun).joining == ("launcher.node_rank=1",)


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (1, "ended with exit code 1 below the DeepSpeed launcher"),
        (247, "killed by SIGKILL below the DeepSpeed launcher"),
        (143, "ended with exit code 143 below the DeepSpeed launcher"),
        (-9, "the DeepSpeed launcher itself killed by SIGKILL"),
    ],
)
def test_its_exit_code_says_how_the_first_rank_failed(code, how):
    assert Launcher(Config()).deaths(code, "") == (Death(rank=None, how=how),)
    assert Launcher(Config()).deaths(0, "") == ()
