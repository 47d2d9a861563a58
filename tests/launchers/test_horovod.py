"""Parent side of `launcher=horovod`, and its builder."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.references.configs import resnet
from tests.run.fakes import job
from train_bench.errors import LaunchError
from train_bench.launcher import Death
from train_bench.launchers.horovod import build
from train_bench.launchers.horovod.config import Config, Controller
from train_bench.launchers.horovod.start import Launcher
from train_bench.launchers.slurm.config import Config as SlurmConfig
from train_bench.launchers.slurm.config import Starter

RANK = (sys.executable, "-m", "train_bench.run.rank", "plan.json", "0")
RUNNER = (sys.executable, "-m", "horovod.runner.launch")

REPORT = """\
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to \
be terminated. The first process to do so was:
Process name: 1
Exit code: {code}

"""


def test_one_host_has_as_many_places_as_ranks_are_asked():
    launch = Launcher(Config(nproc_per_node=3)).launch(job(Path("out"), nproc_per_node=3), RANK)
    assert launch.argv == (
        *(*RUNNER, "--gloo", "--disable-cache", "-np", "3", "-H", "localhost:3"),
        *RANK,
    )


def test_several_hosts_are_named():
    config = Config(nodes=2, nproc_per_node=4, hosts=["n1", "n2"], controller=Controller.mpi)
    argv = Launcher(config).launch(job(Path("out"), nodes=2, nproc_per_node=4), RANK).argv
    assert argv[: len(RUNNER) + 6] == (*RUNNER, "--mpi", "--disable-cache", "-np", "8", "-H", "n1:4,n2:4")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"nproc_per_node": 0}, "at least 1"),
        ({"nodes": 2}, "as many different names in launcher.hosts; it is []"),
        ({"nodes": 2, "hosts": ["n1"]}, "[n1]"),
        ({"nodes": 2, "hosts": ["n1", "n1"]}, "[n1,n1]"),
        ({"nodes": 1, "hosts": ["n1", "n2"]}, "[n1,n2]"),
    ],
)
def test_it_refuses_hosts_that_are_not_as_many_as_asked(options, part):
    assert part in str(Launcher(Config(**options)).refuse(resnet("resnet_mini")))


def test_it_serves_any_optimizer():
    assert Launcher(Config(nproc_per_node=2)).refuse(resnet("resnet")) is None
    assert Launcher(Config(nodes=2, hosts=["n1", "n2"])).refuse(resnet("resnet_mini")) is None


def test_without_horovod_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "`make horovod`" in str(Config().refuse_installation())
    assert "`make horovod`" in str(SlurmConfig(starter=Starter.horovod).refuse_installation())
    assert SlurmConfig().refuse_installation() is None


@pytest.mark.parametrize(
    ("code", "how"), [(1, "ended with exit code 1"), (137, "killed by SIGKILL"), (139, "killed by SIGSEGV")]
)
def test_the_rank_that_failed_first_is_named(code, how):
    assert Launcher(Config()).deaths(1, REPORT.format(code=code)) == (Death(rank=1, how=how),)


def test_without_a_report_horovodrun_died_itself_and_its_last_words_are_kept():
    (death,) = Launcher(Config()).deaths(1, "Traceback ...\nValueError: MPI support has not been built.\n")
    assert str(death) == (
        "horovodrun itself ended with exit code 1: ValueError: MPI support has not been built."
    )
    assert Launcher(Config()).deaths(0, "") == ()


@pytest.fixture
def source(tmp_path):
    """The files of the source distribution that are patched, as far as the patches look at them."""
    for change in build.PATCHES:
        path = tmp_path / change.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"before\n{change.old}\nafter\n")
    return tmp_path


def test_every_patch_changes_its_text(source):
    build.patch(source, cpu_only=True)
    for change in build.PATCHES:
        assert (source / change.file).read_text() == f"before\n{change.new}\nafter\n"


def test_a_build_for_gpus_keeps_looking_for_cuda(source):
    build.patch(source, cpu_only=False)
    for change in build.PATCHES:
        expected = change.old if change.cpu_only else change.new
        assert (source / change.file).read_text() == f"before\n{expected}\nafter\n"


@pytest.mark.parametrize("change", build.PATCHES, ids=lambda change: change.file)
@pytest.mark.parametrize("times", [0, 2])
def test_a_text_that_is_not_there_once_stops_the_build(source, change, times):
    (source / change.file).write_text(change.old * times)
    with pytest.raises(LaunchError, match=f"{times} times; the patch expects it once"):
        build.patch(source, cpu_only=True)


def test_a_kept_build_belongs_to_one_torch_and_one_python_and_one_way_to_build():
    import torch

    keys = {build.key(mpi=mpi, nccl=nccl) for mpi in (True, False) for nccl in (True, False)}
    assert len(keys) == 4
    for key in keys:
        assert f"torch-{torch.__version__}" in key
        assert f"cpython-{sys.version_info.major}{sys.version_info.minor}" in key


def test_a_missing_compiler_is_told_before_anything_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setattr(build.shutil, "which", lambda tool: None)
    with pytest.raises(LaunchError, match="cmake was not found"):
        build.build(tmp_path, mpi=False, nccl=False)
    assert not list(tmp_path.iterdir())
