"""DLRM and DLRM-DCNv2 beside the published references' own code: network, start weights, loss and gradients of the
first, its data as they are prepared, rates of both, and the rows that categories of the second look up."""

from __future__ import annotations

import gzip
import importlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import needs
from tests.references.configs import dlrm, dlrm_dcnv2
from tests.references.published_code import DLRM as COMMIT
from tests.references.published_code import NEWEST, export, importing
from tests.references.test_dlrm_data import MAX_INDEX, Criteo
from train_bench.references.dlrm import criteo, data
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.model import DLRM
from train_bench.references.dlrm.recipe import learning_rate
from train_bench.references.dlrm_dcnv2 import multi_hot
from train_bench.references.parts.recommendation.config import Model

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]
ABSENT = ("mlperf_logger", "onnx", "dlrm_data_pytorch", "sklearn.metrics")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The reference's program as a module."""
    importlib.import_module("torch._dynamo")  # which looks for packages that are absent below
    folder = export("dlrm", COMMIT, ".", tmp_path_factory.mktemp("published"))
    with importing(folder, *ABSENT) as load:
        yield load("dlrm_s_pytorch")


@pytest.fixture(scope="module")
def full() -> Config:
    """The configuration of the full benchmark, with tables of 50 rows."""
    return dlrm("dlrm", "model.max_table_rows=50")


def networks(published: Any, shape: Model) -> tuple[DLRM, nn.Module]:
    """Both networks with dense layers of full size."""
    theirs = published.DLRM_Net(
        shape.bottom[-1],
        np.array(shape.rows),
        np.array([shape.dense_features, *shape.bottom]),
        np.array([479, *shape.top]),
        arch_interaction_op="dot",
        sigmoid_top=len(shape.top) - 1,
    )
    return DLRM(shape, seed=1, rank=0, ranks=1, device=torch.device("cpu")), theirs


def dense_pairs(ours: DLRM, theirs: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Linear layers of both in the same order."""
    mine = [layer for layer in ours.dense.modules() if isinstance(layer, nn.Linear)]
    other = [layer for part in (theirs.bot_l, theirs.top_l) for layer in part if isinstance(layer, nn.Linear)]
    return list(zip(mine, other, strict=True))


def tables(ours: DLRM) -> list[torch.Tensor]:
    """Weights of the tables in their order."""
    return [table for name, table in sorted(ours.tables.named_parameters(), key=lambda one: number(one[0]))]


def number(name: str) -> int:
    """Of a table's parameter."""
    return int("".join(letter for letter in name if letter.isdigit()) or 0)


@pytest.mark.slow
def test_clicks_losses_and_a_step_are_the_references(published: Any, full: Config) -> None:
    ours, theirs = networks(published, full.model)
    for mine, layer in dense_pairs(ours, theirs):
        mine.load_state_dict(layer.state_dict())
    for mine, bag in zip(tables(ours), theirs.emb_l, strict=True):
        mine.data.copy_(bag.weight.data)
    generator = torch.Generator().manual_seed(2)
    dense = torch.rand(32, 13, generator=generator)
    rows = torch.stack([torch.randint(0, count, (32,), generator=generator) for count in full.model.rows])
    clicked = torch.randint(0, 2, (32,), generator=generator).float()
    offsets = torch.arange(32).expand(len(rows), -1)
    logits, shares = ours(dense, rows.T.contiguous()), theirs(dense, offsets, rows).squeeze(1)
    assert torch.allclose(logits.sigmoid(), shares, atol=1e-5)
    mine = functional.binary_cross_entropy_with_logits(logits, clicked)
    published_loss = functional.binary_cross_entropy(shares, clicked)
    assert torch.allclose(mine, published_loss, atol=1e-6)
    mine.backward()
    published_loss.backward()
    published.coalesce_sparse_grads(theirs)
    for one, other in dense_pairs(ours, theirs):
        assert torch.allclose(one.weight.grad, other.weight.grad, atol=1e-6)
    for one, bag in zip(tables(ours), theirs.emb_l, strict=True):
        assert torch.allclose(gradient(one), gradient(bag.weight), atol=1e-6)


def gradient(weight: torch.Tensor) -> torch.Tensor:
    """Of a weight, dense."""
    assert weight.grad is not None
    return weight.grad.to_dense()


def test_start_weights_have_the_distribution_of_the_references(published: Any, full: Config) -> None:
    ours, theirs = networks(published, full.model)
    for mine, layer in dense_pairs(ours, theirs):
        for one, other in zip(mine.parameters(), layer.parameters(), strict=True):
            if one.numel() > 200:
                assert torch.isclose(one.std(), other.std(), rtol=5 * one.numel() ** -0.5 + 0.01)
    for one, bag in zip(tables(ours), theirs.emb_l, strict=True):
        assert torch.isclose(one.abs().max(), bag.weight.abs().max(), rtol=0.05)
        assert torch.isclose(one.std(), bag.weight.std(), rtol=0.1)


def rates(published: Any, steps: int, base: float, warmup: int, start: int, decay: int) -> list[float]:
    """Of the reference, of each step."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
    scheduler = published.LRPolicyScheduler(optimizer, warmup, start, decay)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def ours_of(full: Config, base: float, warmup: int, start: int, decay: int) -> SimpleNamespace:
    """Hyperparameters of a schedule."""
    return SimpleNamespace(
        opt_base_learning_rate=base,
        opt_learning_rate_warmup_steps=warmup,
        lr_decay_start_steps=start,
        sgd_opt_learning_rate_decay_steps=decay,
        sgd_opt_learning_rate_decay_poly_power=full.hyperparameters.sgd_opt_learning_rate_decay_poly_power,
    )


@pytest.mark.parametrize(
    "shape",
    [
        (1.0, 0, 0, 0),
        (24.0, 10, 0, 0),
        (24.0, 10, 30, 20),
        (24.0, 10, 10, 20),
        (24.0, 2, 30, 20),
        (24.0, 1, 1, 20),
    ],
)
def test_rates_are_the_references(published: Any, full: Config, shape: tuple[float, int, int, int]) -> None:
    """Also between warm-up and decay, where the rate of step W - 1 is held."""
    base, warmup, start, decay = shape
    theirs = rates(published, 70, base, warmup, max(start, warmup), decay)
    hyperparameters = ours_of(full, base, warmup, max(start, warmup), decay)
    mine = [
        learning_rate(step, hyperparameters, hold_warmup_rate=full.hold_warmup_rate) for step in range(1, 71)
    ]
    assert mine == pytest.approx(theirs)


@pytest.fixture(scope="module")
def preparing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference that prepare and read the data."""
    folder = export("dlrm", COMMIT, ".", tmp_path_factory.mktemp("published"))
    with importing(folder) as load:
        yield SimpleNamespace(utils=load("data_utils"), loader=load("data_loader_terabyte"))


def prepared(preparing: Any, days: Criteo, folder: Path) -> list[np.ndarray]:
    """Records of each day as the reference prepares them, with categories numbered in the order of values: it numbers
    them as they come, so that rows of a table have another order."""
    folder.mkdir()
    for path in days.source.iterdir():
        text = path.read_bytes()
        (folder / path.stem).write_bytes(gzip.decompress(text) if path.suffix == ".gz" else text)
    arguments = (0.0, criteo.DAYS, "train", "total", False, True)
    preparing.utils.getCriteoAdData(str(folder / "day"), "out", MAX_INDEX, *arguments)
    values = [np.load(folder / f"day_fea_dict_{number}.npz")["unique"] for number in range(26)]
    found = []
    for day in range(criteo.DAYS):
        with np.load(folder / f"day_{day}_reordered.npz") as file:
            numbers = file["X_cat"].astype(int)
            rows = [np.searchsorted(np.sort(one), one[numbers[:, place]]) for place, one in enumerate(values)]
            found.append(np.column_stack([file["y"], file["X_int"], *rows]).astype(int))
    return found


def test_days_become_the_records_of_the_reference(preparing: Any, tmp_path: Path) -> None:
    """All training records in any order, and the first half of the last day, which evaluates, in its own."""
    days = Criteo(tmp_path)
    theirs = prepared(preparing, days, tmp_path / "theirs")
    train, val = days.prepared(tmp_path / "out")
    assert Counter(map(tuple, train.tolist())) == Counter(map(tuple, np.concatenate(theirs[:-1]).tolist()))
    assert np.array_equal(val, theirs[-1][: len(val)])
    batches = list(preparing.loader.DataLoader("day", str(tmp_path / "theirs"), [23], 2, split="test"))
    labels, dense, _ = data.as_batch(val, days.config.model)
    assert torch.equal(labels, torch.cat([one[3] for one in batches]).squeeze(1))
    assert torch.allclose(dense, torch.cat([one[0] for one in batches]))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference of DLRM-DCNv2."""
    folder = export(
        "training", NEWEST, "recommendation_v2/torchrec_dlrm", tmp_path_factory.mktemp("published")
    )
    absent = ("torchrec", "torchrec.datasets", "torchrec.datasets.utils", "torchrec.sparse")
    with importing(folder, *absent, "torchrec.sparse.jagged_tensor") as load:
        yield SimpleNamespace(rates=load("lr_scheduler"), rows=load("multi_hot"))


def test_the_rate_of_the_second_is_constant_in_the_reference_too(second: Any) -> None:
    assert rates(second.rates, 50, 0.004, 0, 0, 0) == [0.004] * 50


def test_categories_of_the_second_look_up_the_rows_of_the_reference(second: Any, tmp_path: Path) -> None:
    config = dlrm_dcnv2("dlrm_dcnv2_mini")
    shape = config.model
    multi_hot.write(shape, tmp_path)
    theirs = second.rows.Multihot(shape.multi_hot, shape.rows, 4, False, "uniform").multi_hot_tables_l
    categories = np.stack([np.arange(60) % rows for rows in shape.rows], axis=1)
    expected = [table.numpy()[categories[:, place]] for place, table in enumerate(theirs)]
    found = multi_hot.MultiHot(config, tmp_path).rows(categories)
    assert np.array_equal(found, np.concatenate(expected, axis=1))


def test_sizes_of_the_second_are_those_that_its_reference_names(tmp_path: Path) -> None:
    readme = export("training", NEWEST, "recommendation_v2/torchrec_dlrm/README.MD", tmp_path).read_text()
    hot = ",".join(str(number) for number in dlrm_dcnv2("dlrm_dcnv2").model.multi_hot)
    assert hot in readme.replace(" ", "")
