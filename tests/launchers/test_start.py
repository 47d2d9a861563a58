"""Parent side of the launchers: text in, text out."""

import sys
from pathlib import Path

import pytest

from tests.fake_campaigns import composed_config
from tests.run.fakes import job
from train_bench.launcher import Death
from train_bench.launchers.inline.config import Config as InlineConfig
from train_bench.launchers.inline.start import Launcher as Inline
from train_bench.launchers.torchrun.config import Config as TorchrunConfig
from train_bench.launchers.torchrun.start import Launcher as Torchrun

BENCHMARK = composed_config().benchmark
RANK = (sys.executable, "-m", "train_bench.run.rank", "plan.json", "0")

REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train_bench.run.rank FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_02:00:00
  host      : somewhere
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_01:59:59
  host      : somewhere
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 12)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12
============================================================
"""


def test_inline_starts_the_rank_itself():
    assert Inline(InlineConfig()).launch(job(Path("out")), RANK).argv == RANK


def test_inline_refuses_more_than_one_process_and_names_the_way_out():
    reason = Inline(InlineConfig(nproc_per_node=2)).refuse(BENCHMARK)
    assert reason is not None
    assert "nproc_per_node=2" in reason
    assert "launcher=torchrun" in reason
    assert Inline(InlineConfig()).refuse(BENCHMARK) is None


def test_inline_names_the_signal_that_killed_the_rank():
    assert Inline(InlineConfig()).deaths(-9, "") == (Death(rank=0, how="killed by SIGKILL"),)
    assert Inline(InlineConfig()).deaths(3, "") == (Death(rank=0, how="ended with exit code 3"),)
    assert Inline(InlineConfig()).deaths(0, "") == ()


def test_torchrun_starts_as_many_ranks_as_were_asked():
    launch = Torchrun(TorchrunConfig(nproc_per_node=3)).launch(job(Path("out"), nproc_per_node=3), RANK)
    assert launch.argv == (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1"),
        *("--log-dir=/dev/null", "--nproc-per-node=3", "-m", "train_bench.run.rank", "plan.json", "0"),
    )


def test_torchrun_finds_every_death_in_the_agents_report_and_the_first_comes_first():
    assert Torchrun(TorchrunConfig()).deaths(1, REPORT) == (
        Death(rank=1, how="killed by SIGKILL"),
        Death(rank=0, how="ended with exit code 1"),
    )


@pytest.mark.parametrize("code", [-15, -9])
def test_a_rank_that_the_agent_of_torchrun_killed_after_the_first_death_is_none(code):
    said = "W1121 02:00:00.000000 9 api.py:1028] Sending process 11 closing signal SIGTERM\n" + REPORT
    killed = said.replace("exitcode  : 1 (pid: 11)", f"exitcode  : {code} (pid: 11)")
    assert Torchrun(TorchrunConfig()).deaths(1, killed) == (Death(rank=1, how="killed by SIGKILL"),)
    by_itself = killed.replace("Sending process 11 ", "Sending process 10 ")
    assert len(Torchrun(TorchrunConfig()).deaths(1, by_itself)) == 2


def test_an_error_of_a_rank_that_the_agent_of_torchrun_was_to_kill_is_found():
    said = "W1121 02:00:00.000000 9 api.py:1028] Sending process 11 closing signal SIGTERM\n" + REPORT
    assert len(Torchrun(TorchrunConfig()).deaths(1, said)) == 2


def test_ranks_that_the_agent_of_torchrun_killed_because_another_host_failed_are_the_deaths_of_this_one():
    said = REPORT.replace("exitcode  : 1 (", "exitcode  : -15 (").replace("-9 (pid", "-15 (pid")
    closed = "".join(f"Sending process {pid} closing signal SIGTERM\n" for pid in (11, 12))
    assert len(Torchrun(TorchrunConfig()).deaths(1, closed + said)) == 2


def test_torchrun_without_a_report_died_itself():
    assert Torchrun(TorchrunConfig()).deaths(-15, "") == (
        Death(rank=None, how="torchrun itself killed by SIGTERM"),
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("192.0.2.1:29500", "type launcher.master_addr=192.0.2.1 launcher.master_port=29500."),
        ("node01:1234", "type launcher.master_addr=node01 launcher.master_port=1234."),
        ("[2001:db8::1]:29500", "type launcher.master_addr=2001:db8::1 launcher.master_port=29500."),
        ("tcp://node01", "give the name or the IP address of a host"),
        ("node01,node02", "give the name or the IP address of a host"),
        ("me@node01", "give the name or the IP address of a host"),
        ("", "give the name or the IP address of a host"),
        ("node01", None),
        ("192.0.2.1", None),
        ("2001:db8::1", None),
        ("n-1.cluster_a.example", None),
    ],
)
def test_an_address_is_refused_with_its_port_and_whatever_is_none(address, said):
    benchmark = composed_config("benchmark=resnet_mini").benchmark
    refused = Torchrun(TorchrunConfig(nodes=2, master_addr=address)).refuse(benchmark)
    assert said in refused if said else refused is None


def test_torchrun_without_a_report_is_quoted_with_its_last_error():
    said = "  File x\nRuntimeError: The server socket has failed to listen: EADDRINUSE\n[W rank 0] bye\n"
    (death,) = Torchrun(TorchrunConfig()).deaths(1, said)
    assert death.how == (
        "torchrun itself ended with exit code 1: RuntimeError: The server socket has failed to listen: EADDRINUSE"
    )
