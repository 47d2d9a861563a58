"""No rank starts the clock before all agree."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.run.fakes import OneRank, job
from train_bench.core import host_clocks, software
from train_bench.errors import LaunchError
from train_bench.run import handshake as handshake_module
from train_bench.run.handshake import CLOCK_BOUND_SECONDS, Answer, disagreement, handshake

FACTS = {"source": "ab12", "job": "cd34", "torch": "2.15.0"}


def answers(*, of_rank_2=None):
    """Four ranks on two hosts that agree, but for what rank 2 says."""
    ranks = [
        Answer(rank=rank, host=f"host{rank // 2}", facts=FACTS, total=10.0, clock=1000.0) for rank in range(4)
    ]
    ranks[2] = replace(ranks[2], **(of_rank_2 or {}))
    return ranks


class Ranks(OneRank):
    """This rank among others, which answer as it does, but for their number."""

    def __init__(self, size):
        self.size = size

    def sum(self, value):
        return value * 0 + self.size * (self.size + 1) / 2

    def gather_objects(self, value):
        return [replace(value, rank=rank) for rank in range(self.size)]


def test_ranks_that_agree_may_start():
    assert disagreement(answers()) is None


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        (
            {"facts": FACTS | {"torch": "2.14.0"}},
            "rank 2 on host1 has torch 2.14.0, rank 0 on host0 has torch 2.15.0",
        ),
        ({"facts": FACTS | {"horovod": "0.28.1"}}, "has horovod 0.28.1, rank 0 on host0 has horovod none"),
        ({"facts": FACTS | {"source": "ffff"}}, "rank 2 on host1 has source ffff"),
        ({"facts": FACTS | {"job": "ffff"}}, "rank 2 on host1 has job ffff"),
        ({"total": 9.0}, "all-reduce over 4 ranks gave 9 on rank 2 on host1; 10 is right"),
        ({"clock": 1000.0 + CLOCK_BOUND_SECONDS + 1}, "clock of rank 2 on host1 is 6.0 s ahead of"),
        ({"clock": 1000.0 - CLOCK_BOUND_SECONDS - 1}, "clock of rank 2 on host1 is 6.0 s behind"),
        ({"rank": 1}, "has to be rank 2 of 4 says that it is rank 1 on host1"),
    ],
)
def test_a_difference_is_told_with_rank_and_host(says, sentence):
    reason = disagreement(answers(of_rank_2=says))
    assert reason is not None
    assert sentence in reason


def test_clocks_within_the_bound_are_good_enough():
    assert disagreement(answers(of_rank_2={"clock": 1000.0 + CLOCK_BOUND_SECONDS})) is None


@pytest.mark.parametrize("size", [1, 2, 8])
def test_fewer_or_more_ranks_than_were_asked_for_do_not_start(tmp_path, size):
    with pytest.raises(LaunchError, match=f"4 ranks were requested, but {size} answered"):
        handshake(job(tmp_path, nproc_per_node=4), Ranks(size))


def test_the_roll_is_called_through_parallel_alone(tmp_path):
    handshake(job(tmp_path, nproc_per_node=4), Ranks(4))


def test_an_all_reduce_that_loses_a_rank_is_noticed(tmp_path):
    class Lossy(Ranks):
        def sum(self, value):
            return torch.tensor(3.0)

    with pytest.raises(LaunchError, match="all-reduce over 4 ranks gave 3"):
        handshake(job(tmp_path, nproc_per_node=4), Lossy(4))


def test_what_has_to_be_equal_is_source_job_python_and_the_packages(tmp_path):
    class Listening(OneRank):
        def gather_objects(self, value):
            self.facts = value.facts
            return [value]

    rank = Listening()
    handshake(job(tmp_path), rank)
    assert {"source", "job", "Python", "torch", "numpy"} <= rank.facts.keys()
    assert rank.facts["source"] == software.digest_of_sources()


def test_every_rank_ends_with_the_sentence_that_rank_0_found(tmp_path):
    class Second(OneRank):
        rank = 1

        def gather_objects(self, value):
            return None

        def from_rank_zero(self, value):
            assert value is None
            return "Ranks disagree."

    with pytest.raises(LaunchError, match=r"Ranks disagree\."):
        handshake(job(tmp_path), Second())


def test_another_job_is_another_answer_and_another_mount_point_is_not(tmp_path):
    class Listening(OneRank):
        def gather_objects(self, value):
            self.heard = value.facts["job"]
            return [value]

    def answer(**changes):
        rank = Listening()
        handshake(job(**({"folder": tmp_path} | changes)), rank)
        return rank.heard

    assert answer() == answer(folder=tmp_path / "elsewhere")
    assert answer() != answer(seed=8)


def test_clocks_of_further_hosts_are_kept_as_far_as_they_are_ahead_of_host_0(tmp_path, monkeypatch):
    class TwoHosts(Ranks):
        def gather_objects(self, value):
            return [
                replace(value, rank=rank, host=f"host{rank // 2}", clock=1000.0 + delay)
                for rank, delay in enumerate((0.0, 0.002, -2.5, -2.498))
            ]

    two = job(tmp_path, nodes=2, nproc_per_node=2)
    handshake(two, TwoHosts(4))
    assert [host_clocks.ahead_ms(two, host) for host in ("host0", "host1", "other")] == [0, -2500, 0]


@pytest.mark.parametrize("content", ["[]", "{", '{"ahead_seconds": 3}', '{"ahead_seconds": {"host1": "x"}}'])
def test_clocks_of_a_damaged_file_are_not_shifted(tmp_path, content):
    one = job(tmp_path)
    one.ranks_folder.mkdir(parents=True)
    (one.ranks_folder / "clocks.json").write_text(content)
    assert host_clocks.ahead_ms(one, "host1") == 0


def test_clocks_are_read_when_all_ranks_have_come_to_a_barrier(tmp_path, monkeypatch):
    """Ranks start seconds apart, and no clock of theirs is wrong for that."""
    trace = []

    class Traced(OneRank):
        def barrier(self):
            trace.append("barrier")

        def gather_objects(self, value):
            trace.append("gather")
            return [value]

    monkeypatch.setattr(
        handshake_module, "time", SimpleNamespace(time=lambda: trace.append("clock") or 1000.0)
    )
    handshake(job(tmp_path), Traced())
    assert trace == ["barrier", "clock", "gather"]
