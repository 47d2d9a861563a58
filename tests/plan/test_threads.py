"""CPU threads of a rank: what the user says, else what the benchmark gains by, else the cores of the host."""

import pytest

from tests.command_line import typed

MINI, FULL = "benchmark=resnet_mini", "benchmark=bert_midi"


@pytest.fixture(autouse=True)
def no_threads_in_the_environment(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def planned(*words):
    answer = typed("plan", *words, "runs=1")
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize(
    "launcher",
    [(), ("launcher=torchrun", "launcher.nproc_per_node=2"), ("launcher=slurm", "launcher.nodes=2")],
)
def test_a_small_benchmark_has_one_thread_a_rank_under_every_launcher(launcher):
    assert "1 thread(s) each" in planned(MINI, *launcher)


def test_what_the_user_asks_for_wins(monkeypatch):
    assert "3 thread(s) each" in planned(MINI, "launcher.threads_per_rank=3")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert "2 thread(s) each" in planned(MINI)
    assert "3 thread(s) each" in planned(MINI, "launcher.threads_per_rank=3")


@pytest.mark.parametrize(
    "words", [(FULL,), (MINI, "command=python train.py"), (MINI, "benchmark.threads_per_rank=null")]
)
def test_where_nobody_says_it_a_rank_takes_its_share_of_the_cores(words):
    assert "thread(s) each" not in planned(*words)


def test_other_threads_make_no_other_benchmark():
    assert "changes" not in planned(MINI, "benchmark.threads_per_rank=2")
