"""DLRM-DCNv2: rows that were drawn for each category, Criteo's arrays, the cross network, Adagrad, tables of several
ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.references.configs import dlrm_dcnv2
from tests.references.one_rank import OneRank
from tests.references.several_ranks import FromFile, start
from tests.references.tasks import mark, weights
from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.references.dlrm_dcnv2 import criteo, multi_hot
from train_bench.references.dlrm_dcnv2.config import Config
from train_bench.references.dlrm_dcnv2.data import as_batch, prepare
from train_bench.references.dlrm_dcnv2.model import CrossLayer, Dense, Network
from train_bench.references.dlrm_dcnv2.task import Task
from train_bench.references.parts import optimizers
from train_bench.references.parts.optimizers import Adagrad
from train_bench.references.parts.recommendation import data

SAMPLES = 30
"""Of each day."""

ROWS = [7, 5, 300, *[4] * 23]
CPU = torch.device("cpu")


@pytest.fixture
def tiny(prepared: Callable[[str], Path]) -> Config:
    """The mini benchmark."""
    config: Config = dlrm_dcnv2("dlrm_dcnv2_mini", f"data_dir={prepared('dlrm_dcnv2')}")
    return config


def opened(config: Config, seed: int = 1, parallel: Parallel | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    task.open_data()
    return task


# Rows of tables.


def test_rows_are_drawn_as_by_one_call_for_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference draws all at once, with numpy's generator of seed 0, also where there is nothing to draw."""
    config = dlrm_dcnv2("dlrm_dcnv2_mini")
    monkeypatch.setattr(multi_hot, "DRAWN_AT_ONCE", 32)
    multi_hot.write(config.model, tmp_path)
    np.random.seed(0)
    categories = np.stack([np.arange(40) % rows for rows in config.model.rows], axis=1)
    expected = []
    for table, (rows, hot) in enumerate(zip(config.model.rows, config.model.multi_hot, strict=True)):
        drawn = np.random.randint(0, rows, size=(rows, hot - 1))
        expected.append(np.concatenate([np.arange(rows)[:, None], drawn], axis=1)[categories[:, table]])
    found = multi_hot.MultiHot(config, tmp_path).rows(categories)
    assert found.dtype == np.int64
    assert np.array_equal(found, np.concatenate(expected, axis=1))


def test_drawn_rows_of_other_tables_are_refused_and_drawn_anew(tmp_path: Path) -> None:
    config = dlrm_dcnv2("dlrm_dcnv2_mini")
    multi_hot.write(config.model, tmp_path)
    other = dlrm_dcnv2("dlrm_dcnv2_mini", "model.multi_hot=[3,1,2,1,5,1]")
    with pytest.raises(RequestError, match=r"multi_hot_4.bin is missing or was made for other tables"):
        multi_hot.MultiHot(other, tmp_path)
    multi_hot.write(other.model, tmp_path)
    assert multi_hot.MultiHot(other, tmp_path).rows(np.zeros((1, 6), np.int64)).shape == (1, 13)


def test_a_changed_byte_of_the_drawn_rows_is_found(tmp_path: Path) -> None:
    config = dlrm_dcnv2("dlrm_dcnv2_mini")
    multi_hot.write(config.model, tmp_path)
    path = tmp_path / "multi_hot_2.bin"
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"multi_hot_2\.bin"):
        multi_hot.MultiHot(config, tmp_path)


# Criteo.


def write_days(folder: Path) -> list[dict[str, np.ndarray]]:
    """The arrays of all days, labels that follow the first dense feature."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    days = []
    for day in range(criteo.DAYS):
        dense = np.log(rng.integers(0, 50, (SAMPLES, 13)) + 2, dtype=np.float32)
        labels = (dense[:, :1] > 3).astype(np.int32)
        days.append(
            {"labels": labels, "dense": dense, "sparse": rng.integers(0, 50, (SAMPLES, 26), np.int32)}
        )
        for part, array in days[-1].items():
            np.save(folder / f"day_{day}_{part}.npy", array)
    return days


def of_days(folder: Path, *overrides: str) -> Config:
    config: Config = dlrm_dcnv2(
        "dlrm_dcnv2",
        f"data_dir={folder}",
        *(f"train_samples={SAMPLES * 23}", f"eval_samples={SAMPLES // 2}", f"model.table_rows={ROWS}"),
        *("model.bottom=[16,8]", "model.top=[32,16,1]", "model.cross_rank=8"),
        *("hyperparameters.global_batch_size=32", "hyperparameters.opt_base_learning_rate=0.05"),
        *overrides,
    )
    return config


def test_days_of_arrays_are_trained_on_and_half_of_the_last_one_is_evaluated(tmp_path: Path) -> None:
    days = write_days(tmp_path / "days")
    config = of_days(tmp_path / "records")
    prepare(config, tmp_path / "records", tmp_path / "days")
    train, val = data.open_records(config)
    drawn = multi_hot.MultiHot(config, tmp_path / "records")
    labels, dense, rows = as_batch(train.read(SAMPLES, SAMPLES), config, drawn)
    assert np.array_equal(labels.numpy(), days[1]["labels"][:, 0])
    assert np.array_equal(dense.numpy(), days[1]["dense"])
    firsts = np.cumsum([0, *config.model.multi_hot[:-1]])
    assert rows.shape == (SAMPLES, sum(config.model.multi_hot))
    assert np.array_equal(rows[:, firsts].numpy(), days[1]["sparse"] % ROWS)
    assert np.array_equal(as_batch(val.read(0, 15), config, drawn)[1].numpy(), days[23]["dense"][:15])
    task = opened(config)
    losses = []
    for step in range(1, 60):
        task.train_until(mark(32 * step))
        losses.append(float(task.last_loss))
    assert 0 <= task.evaluate().metrics["AUC"] <= 1
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@pytest.mark.parametrize(
    ("part", "array", "said"),
    [
        ("labels", None, "day_3_labels.npy is missing"),
        ("dense", np.zeros((SAMPLES, 12), np.float32), r"float32 \(30, 12\); float32 \(30, 13\) is needed"),
        ("dense", np.full((SAMPLES, 13), -1, np.float32), "is -1.0; logarithms from 0 up are needed"),
        ("dense", np.full((SAMPLES, 13), np.nan, np.float32), "is nan; logarithms from 0 up are needed"),
        ("sparse", np.zeros((SAMPLES, 26), np.int64), r"int64 \(30, 26\); int32 \(30, 26\) is needed"),
        ("sparse", np.array([{}] * SAMPLES), "is not an array of numbers"),
        ("labels", np.full((SAMPLES, 1), 2, np.int32), "the label 2; allowed are 0 and 1"),
    ],
)
def test_what_is_wrong_with_a_day_is_said(
    part: str, array: np.ndarray | None, said: str, tmp_path: Path
) -> None:
    write_days(tmp_path / "days")
    path = tmp_path / "days" / f"day_3_{part}.npy"
    path.unlink()
    if array is not None:
        np.save(path, array)
    with pytest.raises(RequestError, match=said):
        prepare(of_days(tmp_path), tmp_path / "records", tmp_path / "days")


def test_other_days_than_those_of_the_benchmark_are_refused_before_they_are_packed(tmp_path: Path) -> None:
    write_days(tmp_path / "days")
    with pytest.raises(RequestError, match=r"700 training and 15 evaluation samples; found 690 and 15"):
        prepare(of_days(tmp_path, "train_samples=700"), tmp_path / "records", tmp_path / "days")
    assert not (tmp_path / "records" / "train.bin").exists()


def test_what_cannot_be_trained_is_refused() -> None:
    for override, reason in (
        ("hyperparameters.opt_name=sgd", "trains with adagrad"),
        ("hyperparameters.opt_learning_rate_warmup_steps=5", "opt_learning_rate_warmup_steps is 5"),
        ("model.multi_hot=[1,2]", "of each of the 6 tables"),
        ("model.table_rows=[9,0,9,9,9,9]", "every one needs at least 1"),
    ):
        refused = dlrm_dcnv2("dlrm_dcnv2_mini", override).refuse()
        assert refused is not None and reason in refused
    assert dlrm_dcnv2("dlrm_dcnv2_mini").refuse() is None


# The network and its optimizer.


def test_the_full_network_has_the_parameters_of_its_layers() -> None:
    """3,456 numbers go through the cross network: 27 vectors of 128."""
    model = dlrm_dcnv2("dlrm_dcnv2").model
    with torch.device("meta"):
        dense = Dense(model)
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    cross = 3 * (2 * 3456 * 512 + 3456)
    top = 3456 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert sum(weight.numel() for weight in dense.parameters()) == bottom + cross + top == 16_044_545
    assert (len(model.rows), sum(model.rows), sum(model.multi_hot)) == (26, 204_184_588, 214)


def test_a_cross_layer_is_its_equation_and_begins_as_the_reference_s_does() -> None:
    torch.manual_seed(0)
    layer = CrossLayer(6, 3).double()
    assert not layer.up.bias.detach().any()
    torch.nn.init.normal_(layer.up.bias)
    first, inputs = torch.randn(2, 5, 6, dtype=torch.float64)
    found = layer(first, inputs).detach()
    down, up, bias = (weight.detach() for weight in (layer.down.weight, layer.up.weight, layer.up.bias))
    for sample in range(5):
        for place in range(6):
            total = sum(
                up[place, rank] * sum(down[rank, other] * inputs[sample, other] for other in range(6))
                for rank in range(3)
            )
            expected = first[sample, place] * (total + bias[place]) + inputs[sample, place]
            assert float(found[sample, place]) == pytest.approx(float(expected), rel=1e-12)
    wide = CrossLayer(600, 100)
    for weight in (wide.up.weight, wide.down.weight):
        assert float(weight.detach().std()) == pytest.approx(math.sqrt(2 / 700), rel=0.02)


def test_tables_and_layers_are_updated_by_the_equation_of_adagrad() -> None:
    """Rows that are looked up twice by one batch get the square of the sum; others stay."""
    shape = dlrm_dcnv2("dlrm_dcnv2_mini").model
    torch.manual_seed(1)
    model = Network(shape, seed=1, rank=0, ranks=1, device=CPU)
    optimizer = Adagrad(model.parameters(), lr=0.1, eps=1e-8)
    before = [weight.detach().double().clone() for weight in model.parameters()]
    sums = [torch.zeros_like(weight) for weight in before]
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        rows = [
            torch.randint(0, rows, (9, hot), generator=generator)
            for rows, hot in zip(shape.rows, shape.multi_hot, strict=True)
        ]
        optimizer.zero_grad()
        model(torch.rand(9, 4, generator=generator), torch.cat(rows, 1)).square().sum().backward()
        for number, weight in enumerate(model.parameters()):
            assert weight.grad is not None
            gradient = weight.grad.to_dense().double()
            sums[number] += gradient.square()
            before[number] -= 0.1 * gradient / (sums[number].sqrt() + 1e-8)
        optimizer.step()
    for weight, expected in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(weight.detach().double(), expected, atol=2e-6, rtol=1e-5)
    assert any(bool((total == 0).all(dim=-1).any()) for total in sums), "no row was left alone"


def test_the_step_of_a_gpu_which_counts_no_rows_is_that_of_a_cpu_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients are whole numbers, whose sum is the same in any order."""
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(50, 8, generator=generator)
    tables = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    steps = [Adagrad([table], lr=0.1, eps=1e-8, lr_decay=0.01) for table in tables]
    for looked_up in (1, 40, 300):
        rows = torch.randint(0, 20, (1, looked_up), generator=generator)
        values = torch.randint(-8, 9, (looked_up, 8), generator=generator).float()
        for table, step, host in zip(tables, steps, ("cpu", "cuda"), strict=True):
            table.grad = torch.sparse_coo_tensor(rows, values, table.shape, check_invariants=True)
            monkeypatch.setattr(optimizers, "HOST", torch.device(host))
            step.step()
        sums = (step.state[table]["sum"] for step, table in zip(steps, tables, strict=True))
        assert torch.equal(*tables) and torch.equal(*sums)
    assert torch.equal(tables[0][20:], start[20:]) and not torch.equal(tables[0][:20], start[:20])


def test_a_warm_up_leaves_no_trace_in_tables_and_their_sums(tiny: Config) -> None:
    ends = []
    for steps in (0, 2):
        tiny.warm_up_steps = steps
        task = opened(tiny)
        states = [task.optimizer.state[weight] for weight in task.model.parameters()]
        assert all(set(state) == {"step", "sum"} for state in states)
        assert not any(bool(value.any()) for state in states for value in state.values())
        task.train_until(mark(1024))
        ends.append(weights(task))
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def _second_of_two(rank: int, folder: Path, config: Config) -> None:
    """Go on from what one rank has saved, evaluate and save."""
    parallel = FromFile(folder, rank=rank, size=2)
    task = opened(config, seed=99, parallel=parallel)
    assert 0 < len(task.model.tables.weights) < len(config.model.rows)
    task.load(folder)
    task.train_until(mark(10000))
    torch.save(task.evaluate().metrics["AUC"], folder / f"found_{rank}.pt")
    task.save(folder / "both")
    parallel.leave()


@pytest.mark.full
def test_two_ranks_go_on_from_a_checkpoint_of_one_as_it_does_itself(tiny: Config, tmp_path: Path) -> None:
    """The sums of squares are saved with the tables, whoever holds these."""
    alone = opened(tiny)
    alone.train_until(mark(8000))
    alone.save(tmp_path)
    alone.train_until(mark(10000))
    expected = alone.evaluate().metrics["AUC"]
    start(_second_of_two, tmp_path, tiny, ranks=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"found_{rank}.pt", weights_only=True)
        assert found == pytest.approx(expected, abs=1e-5)
    again = opened(tiny, parallel=FromFile(tmp_path, rank=0, size=1))
    again.load(tmp_path / "both")
    torch.testing.assert_close(weights(again), weights(alone), atol=1e-5, rtol=1e-4)
    kept = [
        torch.cat([task.optimizer.state[weight]["sum"].flatten() for weight in task.model.parameters()])
        for task in (again, alone)
    ]
    torch.testing.assert_close(kept[0], kept[1], atol=1e-5, rtol=1e-3)
