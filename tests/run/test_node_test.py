"""Ranks compute and reduce before the clock, and those that are slower than others are named."""

import json
from dataclasses import replace

import pytest
import torch

from tests.run.fakes import OneRank, job
from train_bench.errors import LaunchError
from train_bench.run import microbenchmarks, node_test, rank, system
from train_bench.run.node_test import RankRates

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(microbenchmarks, "SECONDS", 0.0)


class First(OneRank):
    """Rank 0 on a CPU, whose other ranks answer as it does, but half as fast."""

    device = CPU

    def __init__(self, size=2):
        self.size, self.sums, self.barriers = size, 0, 0

    def sum(self, value):
        self.sums += 1
        return value

    def barrier(self):
        self.barriers += 1

    def gather_objects(self, value):
        if not isinstance(value, RankRates):
            return [value] * self.size
        others = (
            replace(value, rank=at, host=f"n{at}", flop_per_second=value.flop_per_second / 4)
            for at in range(1, self.size)
        )
        return [value, *others]


def ranks(*rates, device="cuda", **of_last):
    """Two ranks a node, with these rates in TFLOP/s; the last has another name or state, where given."""
    rows = [
        RankRates(rank=at, host=f"n{at // 2}", device=device, name="H", flop_per_second=1e12 * rate, state={})
        for at, rate in enumerate(rates)
    ]
    return [*rows[:-1], replace(rows[-1], **of_last)]


def test_figures_of_all_ranks_go_to_system_json_and_slow_ones_into_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "_processor", lambda: "a processor")
    machine, _ = rank._hardware(job(tmp_path, nodes=2, node_test=True), First(), is_restart=False)
    figures = json.loads(json.dumps(machine["node_test"]))
    assert [row["rank"] for row in figures["ranks"]] == [0, 1]
    first, second = (row["flop_per_second"] for row in figures["ranks"])
    assert first == 4 * second > 1e6
    assert figures["all_reduce_bytes_per_second"] > 0
    assert (figures["precision"], figures["product_side"]) == ("fp32", 256)
    (sentence,) = machine["unequal_hardware"]
    assert sentence.startswith("Matrix products on n1 are slow: rank 1 (a processor) at ")
    assert "TFLOP/s, 75 % below the " in sentence
    assert "usual among 2 ranks like it; 50 % are allowed. Look at other processes on n1" in sentence


@pytest.mark.parametrize(
    ("wanted", "kind", "is_restart", "tested"),
    [
        (None, "cpu", False, False),
        (None, "cuda", False, True),
        (True, "cpu", False, True),
        (False, "cuda", False, False),
        (True, "cpu", True, False),
    ],
)
def test_gpus_are_tested_and_processors_if_requested_but_never_on_the_clock(
    tmp_path, monkeypatch, wanted, kind, is_restart, tested
):
    asked = []
    monkeypatch.setattr(node_test, "run", lambda *words: asked.append(words) or ({}, ["slow"]))
    own = system.RankHardware(host=0, accelerator=None, identity=None, processor="P", cores=frozenset({0}))
    monkeypatch.setattr(system, "rank_hardware", lambda device, *, host: own)
    parallel = First()
    parallel.device = torch.device(kind)
    machine, _ = rank._hardware(job(tmp_path, node_test=wanted), parallel, is_restart=is_restart)
    assert bool(asked) is tested
    assert (machine["node_test"], machine["unequal_hardware"]) == (({}, ["slow"]) if tested else (None, []))


def test_every_rank_makes_equally_many_collectives_however_fast_it_is(tmp_path, monkeypatch):
    own = system.rank_hardware(CPU, host=0)
    counts = set()
    for seconds in (0.0, 0.01):
        monkeypatch.setattr(microbenchmarks, "SECONDS", seconds)
        parallel = First()
        node_test.run(job(tmp_path), parallel, own)
        counts.add((parallel.sums, parallel.barriers))
    assert counts == {(node_test.REPETITIONS, node_test.REPETITIONS + 1)}


def test_one_rank_reduces_with_nobody(tmp_path):
    alone = First(size=1)
    figures, sentences = node_test.run(job(tmp_path), alone, system.rank_hardware(CPU, host=0))
    assert (figures["all_reduce_bytes_per_second"], alone.sums, sentences) == (None, 0, [])


def test_random_numbers_of_the_run_are_those_that_it_would_have_without_the_test(tmp_path):
    before = torch.get_rng_state()
    node_test.run(job(tmp_path), First(), system.rank_hardware(CPU, host=0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ranks(700, 690, 680, 640), []),
        (ranks(700, 690, 680, 620), ["on n1 are slow: rank 3 (H) at 620 TFLOP/s, 10.1 % below the 690"]),
        (
            ranks(700, 400, 690, 680, 500, 300),
            ["on n0 are slow: rank 1", "on n2 are slow: ranks 4, 5 (H) at 300"],
        ),
        (ranks(700, 350), ["on n0 are slow: rank 1 (H) at 350 TFLOP/s, 50 % below the 700"]),
        (ranks(700, 690, 680, 100, name="A"), []),
        (ranks(2.0, 1.1, device="cpu"), []),
    ],
)
def test_hosts_are_named_whose_ranks_are_slower_than_those_with_the_same_device(rows, said):
    sentences = [*node_test.slow(rows)]
    assert len(sentences) == len(said)
    for sentence, part in zip(sentences, said, strict=True):
        assert part in sentence
        assert sentence.endswith("or leave this host out. All ranks wait for the slowest.")


def test_a_gpu_with_memory_errors_or_a_hot_one_is_named():
    state = {"uncorrected_ecc_errors": 2, "slowdowns": ["hardware thermal slowdown"]}
    errors, hot = node_test.impaired(ranks(700, 690, 680, 670, state=state))
    assert errors.startswith(
        "The GPU of rank 3 on n1 has 2 uncorrected memory errors since the last reset. Reset it"
    )
    assert hot.startswith(
        "The GPU of rank 3 on n1 is slowed down under load (hardware thermal slowdown). Look at "
    )
    healthy = {"uncorrected_ecc_errors": 0, "slowdowns": [], "clock_mhz": 1980}
    assert not [*node_test.impaired(ranks(700, 690, state=healthy))]


def test_a_device_of_which_no_sizes_are_known_is_refused(tmp_path):
    other = First()
    other.device = torch.device("xpu")
    assert not node_test.is_due(job(tmp_path), other)
    with pytest.raises(LaunchError, match=r"ranks compute on xpu\. Leave it out"):
        node_test.is_due(job(tmp_path, node_test=True), other)
