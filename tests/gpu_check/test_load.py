"""The load of all accelerators of a host, with processors in place of several."""

import threading

import pytest
import torch

from train_bench.core.job import Precision
from train_bench.gpu_check import load
from train_bench.gpu_check.probe import numbers_of
from train_bench.run import microbenchmarks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(microbenchmarks, "SECONDS", 0.0)
    monkeypatch.setattr(load, "end_process", lambda: None)


def test_every_device_has_its_rates_by_the_measuring_code_of_gpu_check():
    rows = load.load([CPU] * 3, Precision.fp32, 0.0)
    assert [(row.index, row.error) for row in rows] == [(0, None), (1, None), (2, None)]
    assert all(set(row.rates) == {"product", "memory"} and min(row.rates.values()) > 0 for row in rows)


def test_a_device_that_fails_is_left_alone_and_the_others_go_on(monkeypatch):
    products, calls = microbenchmarks.product_rate, []

    def product_rate(*words):
        calls.append(words)
        if len(calls) == 1:
            raise RuntimeError("an uncorrectable ECC error")
        return products(*words)

    monkeypatch.setattr(microbenchmarks, "product_rate", product_rate)
    rows = load.load([CPU] * 3, Precision.fp32, 0.0)
    (failed,) = (row for row in rows if row.error)
    assert (failed.error, failed.rates) == ("RuntimeError: an uncorrectable ECC error", {})
    assert sum(len(row.rates) for row in rows) == 4
    reduced = []
    found = load.pairs([CPU] * 3, rows, reduced.append)
    assert [pair["gpus"] for pair in found] == [
        pair for pair in ([0, 1], [1, 2], [2, 0]) if failed.index not in pair
    ]


@pytest.mark.parametrize(("count", "pairs"), [(1, []), (2, [[0, 1]]), (4, [[0, 1], [1, 2], [2, 3], [3, 0]])])
def test_neighbours_in_a_ring_reduce_in_pairs(count, pairs):
    rows = [load.Loaded(index=at, name="cpu", uuid=None) for at in range(count)]
    reduced = []
    found = load.pairs([CPU] * count, rows, lambda tensors: reduced.append(len(tensors)))
    assert [pair["gpus"] for pair in found] == pairs
    assert set(reduced) <= {2} and all(pair["rate"] > 0 for pair in found)


def test_a_pair_that_fails_leaves_all_others_their_rates(monkeypatch, capsys):
    def reduce(tensors):
        calls.append(tensors)
        if len(calls) == 1:
            raise RuntimeError("NCCL Error 2: unhandled system error")

    calls = []
    monkeypatch.setattr(load, "devices", lambda kind: [CPU] * 4)
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", reduce)
    monkeypatch.setattr(load.sys, "argv", ["load", "auto", "fp32", "0"])
    load.main()
    said = numbers_of(capsys.readouterr().out)
    why = "RuntimeError: NCCL Error 2: unhandled system error"
    assert [row["error"] for row in said["gpus"]] == [
        f"all-reduce with 1: {why}",
        f"all-reduce with 0: {why}",
        None,
        None,
    ]
    assert all(set(row["rates"]) == {"product", "memory"} for row in said["gpus"])
    assert [pair["gpus"] for pair in said["pairs"]] == [[1, 2], [2, 3], [3, 0]]


def test_a_pair_that_hangs_is_named_and_costs_no_accelerator_its_rates(monkeypatch, capsys):
    for_ever, calls = threading.Event(), []

    def reduce(tensors):
        calls.append(tensors)
        if len(calls) > 2:  # each pair makes two
            for_ever.wait(3)

    monkeypatch.setattr(load, "PAIR_SECONDS", 0.2)
    monkeypatch.setattr(load, "devices", lambda kind: [CPU] * 4)
    monkeypatch.setattr(load.microbenchmarks, "per_second", lambda work, device: (work(), work(), 2.0)[2])
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", reduce)
    monkeypatch.setattr(load.sys, "argv", ["load", "auto", "fp32", "0"])
    load.main()
    for_ever.set()
    said = numbers_of(capsys.readouterr().out)
    why = "TimeoutError: no end within 0.2 s"
    assert [row["error"] for row in said["gpus"]] == [
        None,
        f"all-reduce with 2: {why}",
        f"all-reduce with 1: {why}",
        None,
    ]
    assert all(set(row["rates"]) == {"product", "memory"} for row in said["gpus"])
    assert [pair["gpus"] for pair in said["pairs"]] == [[0, 1]], "none behind it is tried"


def test_a_phase_that_hangs_leaves_the_figures_of_those_before(monkeypatch, capsys):
    def killed(size, device):
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "devices", lambda kind: [CPU])
    monkeypatch.setattr(load.microbenchmarks, "triad_rate", killed)
    monkeypatch.setattr(load.sys, "argv", ["load", "auto", "fp32", "0"])
    with pytest.raises(KeyboardInterrupt):
        load.main()
    (row,) = numbers_of(capsys.readouterr().out)["gpus"]
    assert set(row["rates"]) == {"product"}


def test_a_pair_without_memory_is_one_that_fails(monkeypatch):
    rows = [load.Loaded(index=at, name="cpu", uuid=None) for at in range(2)]

    def zeros(*words, **named):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(load.torch, "zeros", zeros)
    assert load.pairs([CPU] * 2, rows, lambda tensors: None) == []
    assert [row.error for row in rows] == [
        f"all-reduce with {at}: OutOfMemoryError: out of memory" for at in (1, 0)
    ]


@pytest.mark.parametrize(
    ("precision", "dtype"), [(Precision.bf16, torch.bfloat16), (Precision.fp32, torch.float32)]
)
def test_products_are_those_of_the_precision_of_the_job(precision, dtype, monkeypatch):
    asked = []
    monkeypatch.setattr(
        microbenchmarks, "product_rate", lambda side, of, device: asked.append((side, of)) or 1.0
    )
    load.load([CPU], precision, 0.0)
    assert asked == [(128, dtype)]


def test_what_the_driver_says_belongs_to_the_accelerator_with_that_uuid(monkeypatch):
    rows = [load.Loaded(index=at, name="H", uuid=f"GPU-{at}") for at in range(2)]
    said = "GPU-1, 1200 MHz, 350.10 W, 88, 0\nGPU-7, 1 MHz, 1 W, 1, 1\nhalf a line\n"
    monkeypatch.setattr(load, "run", lambda command: type("Answer", (), {"stdout": said}))
    load._ask_driver(rows, 0.0)
    assert rows[0].facts == {}
    assert rows[1].facts == dict(zip(load.SMI[1:], ["1200 MHz", "350.10 W", "88", "0"], strict=True))


def test_without_gpus_auto_is_the_processor_and_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert load.devices("auto") == load.devices("cpu") == [CPU]
    with pytest.raises(SystemExit, match="PyTorch finds no GPU here"):
        load.devices("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert load.devices("auto") == [torch.device("cuda", 0), torch.device("cuda", 1)]
