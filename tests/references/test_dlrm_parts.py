"""The parts of DLRM: exact AUC, tables over ranks, dense network, learning rate."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.references.configs import dlrm
from tests.references.one_rank import OneRank
from tests.references.schedules import schedule_of
from tests.references.several_ranks import FromFile, start
from tests.selection import others_in_full
from train_bench.core.job import Precision
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.references.dlrm.config import Hyperparameters, Model
from train_bench.references.dlrm.model import DLRM, Dense, tensor_names
from train_bench.references.dlrm.recipe import learning_rate
from train_bench.references.parts.recommendation.quality import CHUNK, roc_auc
from train_bench.references.parts.recommendation.tables import Tables, place

ROWS = [50, 3, 20, 7]
BATCH = 8
CPU = torch.device("cpu")


@pytest.mark.parametrize("levels", [2, 10, 10**6])
def test_auc_is_that_of_scikit_learn_with_ties(levels: int) -> None:
    rng = np.random.default_rng(levels)
    labels = rng.random(5000) < 0.1
    scores = (rng.integers(0, levels, 5000) / levels + 0.2 * labels).astype(np.float32)
    assert roc_auc(scores, labels, OneRank()) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_auc_of_equal_scores_is_one_half_and_of_separated_ones_is_one() -> None:
    labels = np.array([True, False, True, False])
    assert roc_auc(np.full(4, 3.0, np.float32), labels, OneRank()) == 0.5
    assert roc_auc(labels.astype(np.float32), labels, OneRank()) == 1.0


def test_auc_holds_its_scores_twice_and_little_else() -> None:
    """Memory is bounded by 4 bytes per sample for its negatives, 1 for who they are, and the chunk."""
    rng = np.random.default_rng(1)
    samples = 4_000_000
    scores = rng.standard_normal(samples, dtype=np.float32)
    labels = rng.random(samples) < 0.03
    tracemalloc.start()
    roc_auc(scores, labels, OneRank())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    positives = int(labels.sum())
    assert peak < 5 * samples + 3 * 4 * positives + 16 * min(CHUNK, positives) + (1 << 20)


def test_auc_refuses_one_class_and_scores_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="0 positive"):
        roc_auc(np.zeros(3, np.float32), np.zeros(3, bool), OneRank())
    with pytest.raises(ValueError, match="diverged"):
        roc_auc(np.array([0, np.nan], np.float32), np.array([True, False]), OneRank())


def test_every_table_has_one_rank_and_the_largest_are_apart() -> None:
    placed = place([5, 100, 90, 1], [1, 1, 1, 1], 2)
    assert sorted(table for tables in placed for table in tables) == [0, 1, 2, 3]
    assert not any({1, 2} <= set(tables) for tables in placed)


def test_tables_are_divided_by_lookups_as_far_as_memory_allows() -> None:
    """The full tables, on eight ranks: none looks up more than the largest single table and no other more than the
    second, and a rank has one of the five with 40 million rows at most."""
    model = dlrm("dlrm_dcnv2").model
    placed = place(model.rows, model.multi_hot, 8)
    lookups = sorted(sum(model.multi_hot[table] for table in tables) for tables in placed)
    assert lookups == [14, 14, 14, 15, 15, 15, 27, 100]
    rows = [sum(model.rows[table] for table in tables) for tables in placed]
    assert max(rows) < 1.1 * max(model.rows)
    assert place([10, 10, 1], [1, 1, 9], 2) == [[1, 2], [0]], "rank 1 has no room for both large tables"


def test_the_full_model_has_the_parameters_of_the_facts() -> None:
    model = dlrm("dlrm").model
    dense = Dense([model.dense_features, *model.bottom], model.top, len(model.rows))
    bottom = sum(weight.numel() for weight in dense.bottom.parameters())
    top = sum(weight.numel() for part in (dense.top, dense.last) for weight in part.parameters())
    assert (bottom, top) == (171392, 2197505)
    assert sum(model.rows) * model.bottom[-1] == 24034227072
    assert len(model.rows) == 26


def test_tensors_are_named_as_the_rules_name_them() -> None:
    bottom, top = ([f"{part}_mlp_dense{n}" for n in range(1, 6)] for part in ("bottom", "top"))
    assert tensor_names(dlrm("dlrm").model) == ["embeddings", *bottom[:3], *top]


def test_the_interaction_puts_the_dense_vector_first_and_takes_the_lower_triangle() -> None:
    dense = Dense([2, 3], [4, 1], 2)
    vectors = torch.randn(5, 3, 3)
    dense.bottom = torch.nn.Identity()
    seen: list[torch.Tensor] = []
    dense.top.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    dense(vectors[:, 0], vectors[:, 1:].unbind(1))
    products = [(vectors[:, i] * vectors[:, j]).sum(1) for i, j in ((1, 0), (2, 0), (2, 1))]
    torch.testing.assert_close(seen[0], torch.cat([vectors[:, 0], torch.stack(products, 1)], 1))


def test_the_gradient_of_the_interaction_is_that_of_plain_products() -> None:
    ends = []
    for plain in (False, True):
        torch.manual_seed(3)
        network = Dense([2, 3], [4, 1], 4)
        features = torch.randn(6, 2)
        embeddings = [torch.randn(6, 3, requires_grad=True) for _ in range(4)]
        if plain:
            lowest = network.bottom(features)
            vectors = torch.stack([lowest, *embeddings], dim=1)
            products = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(5) for j in range(i)]
            logits = network.last(network.top(torch.cat([lowest, torch.stack(products, 1)], 1)))[:, 0]
        else:
            logits = network(features, embeddings)
        logits.square().sum().backward()
        found = [tensor.grad for tensor in (*embeddings, *network.parameters())]
        ends.append([logits.detach(), *(gradient for gradient in found if gradient is not None)])
    assert len(ends[0]) == len(ends[1]) == 1 + 4 + 6
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other)


def test_weights_start_from_the_distributions_of_the_reference() -> None:
    torch.manual_seed(1)
    dense = Dense([13, 512, 256, 128], [1024, 1024, 512, 256, 1], 26)
    layer = dense.bottom[2]
    assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / (512 + 256)), rel=0.02)
    assert float(layer.bias.detach().std()) == pytest.approx(math.sqrt(1 / 256), rel=0.15)
    tables = Tables([10000], 4, seed=1, rank=0, ranks=1, device=CPU)
    weight = tables.weights["0"].detach()
    assert 0.0099 < float(weight.max()) <= 0.01 and -0.01 <= float(weight.min()) < -0.0099


def hyperparameters(base: float, warmup: int, start: int, decay: int) -> Hyperparameters:
    return Hyperparameters(
        global_batch_size=1,
        opt_base_learning_rate=base,
        opt_learning_rate_warmup_steps=warmup,
        lr_decay_start_steps=start,
        sgd_opt_base_learning_rate=base,
        sgd_opt_learning_rate_decay_steps=decay,
    )


def test_the_rate_warms_up_stays_decays_and_freezes() -> None:
    rates = [learning_rate(step, hyperparameters(8.0, 4, 6, 4)) for step in (1, 4, 5, 6, 8, 9, 99)]
    assert rates == [2.0, 8.0, 8.0, 8.0, 2.0, 0.5, 0.5]
    held = [
        learning_rate(step, hyperparameters(8.0, 4, 6, 4), hold_warmup_rate=True) for step in (3, 4, 5, 6)
    ]
    assert held == [6.0, 6.0, 6.0, 8.0]
    assert learning_rate(7, hyperparameters(1.0, 0, 0, 0)) == 1.0


def test_the_rates_of_the_published_point_at_55296() -> None:
    found = schedule_of(dlrm("dlrm_bs55296"))
    steps = (1, 2750, 49314, 49315, 49315 + 13886, 49315 + 27771, 10**6)
    wanted = (24 / 2750, 24 * 2749 / 2750, 24 * 2749 / 2750, 24.0, 6.0, 1e-7, 1e-7)
    assert [found(step - 1) for step in steps] == pytest.approx(wanted, rel=1e-6)


def _table_gradients(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """Gradients of a rank's tables for the mean loss over the same global batch of any number of ranks."""
    generator = torch.Generator().manual_seed(1)
    indices = torch.stack([torch.randint(0, n, (BATCH,), generator=generator) for n in ROWS], dim=1)
    weights = torch.randn(BATCH, len(ROWS), 4, generator=generator)
    tables = Tables(ROWS, 4, seed=7, rank=rank, ranks=ranks, device=CPU)
    share = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    (torch.stack(tables(indices[share]), dim=1) * weights[share]).square().sum(dim=(1, 2)).mean().backward()
    return {name: weight.grad.coalesce().to_dense() for name, weight in tables.weights.items()}


def _one_of(rank: int, ranks: int, folder: Path) -> None:
    parallel = FromFile(folder, rank=rank, size=ranks)
    torch.save(_table_gradients(rank, ranks), folder / f"{rank}.pt")
    parallel.leave()


@pytest.mark.full
# With eight ranks, four have no table.
@pytest.mark.parametrize("ranks", others_in_full([2, 8], [2]))
def test_tables_over_ranks_get_the_gradients_of_one_rank(ranks: int, tmp_path: Path) -> None:
    start(_one_of, ranks, tmp_path, ranks=ranks)
    found: dict[str, torch.Tensor] = {}
    for rank in range(ranks):
        found |= torch.load(tmp_path / f"{rank}.pt", weights_only=True)
    wanted = _table_gradients(0, 1)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


def _three_steps(parallel: TorchParallel, overflow_on: int | None = None) -> dict[str, torch.Tensor]:
    """Weights after steps of a whole model, and the loss scale. In the second step, the gradient of one rank's
    table overflows."""
    shape = Model(dense_features=2, bottom=[5, 4], top=[6, 1], table_rows=ROWS)
    torch.manual_seed(1)
    model = DLRM(shape, seed=7, rank=parallel.rank, ranks=parallel.size, device=CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = parallel.wrap(model, optimizer, local_params=model.tables.parameters())
    generator = torch.Generator().manual_seed(2)
    share = slice(parallel.rank * BATCH // parallel.size, (parallel.rank + 1) * BATCH // parallel.size)
    stepped = []
    for step in range(3):
        indices = torch.stack([torch.randint(0, n, (BATCH,), generator=generator) for n in ROWS], dim=1)
        dense = torch.rand(BATCH, 2, generator=generator)
        with parallel.forward():
            parallel.backward(wrapped(dense[share], indices[share]).square().mean())
        if step == 1 and overflow_on == parallel.rank:
            next(iter(model.tables.parameters())).grad._values().fill_(math.inf)
        stepped.append(bool(parallel.step()))
    found = {name: weight.detach() for name, weight in model.named_parameters()}
    return found | {"stepped": torch.tensor(stepped)}


def _train_one_of(rank: int, folder: Path) -> None:
    for precision in (Precision.fp32, Precision.fp16):
        parallel = FromFile(folder, rank=rank, size=2, precision=precision)
        done = _three_steps(parallel, overflow_on=1 if precision is Precision.fp16 else None)
        torch.save(done, folder / f"{precision.value}_{rank}.pt")
        parallel.leave()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, torch.Tensor]]]:
    """What two ranks end with, in fp32, and in fp16 with an overflow in a table of rank 1."""
    folder = tmp_path_factory.mktemp("two")
    start(_train_one_of, folder, ranks=2)
    return {
        precision: [torch.load(folder / f"{precision}_{rank}.pt", weights_only=True) for rank in range(2)]
        for precision in ("fp32", "fp16")
    }


@pytest.mark.full
def test_two_ranks_take_the_steps_of_one(two_ranks: dict[str, list[dict[str, torch.Tensor]]]) -> None:
    alone = _three_steps(FromFile(Path(), rank=0, size=1))
    first, second = two_ranks["fp32"]
    tables = [{name for name in one if "tables" in name} for one in (first, second)]
    assert tables[0] and tables[1] and not tables[0] & tables[1]
    for name, wanted in alone.items():
        for found in (first, second):
            if name in found:
                torch.testing.assert_close(found[name], wanted)


@pytest.mark.full
def test_a_table_that_overflows_on_one_rank_holds_all_ranks_back(
    two_ranks: dict[str, list[dict[str, torch.Tensor]]],
) -> None:
    first, second = two_ranks["fp16"]
    assert first["stepped"].tolist() == second["stepped"].tolist() == [True, False, True]
    for found in (first, second):
        assert all(bool(torch.isfinite(weight).all()) for weight in found.values())
    shared = first.keys() & second.keys()
    assert all(torch.equal(first[name], second[name]) for name in shared)


def test_gradients_that_ranks_do_not_share_are_not_clipped() -> None:
    parallel = FromFile(Path(), rank=0, size=1)
    parallel.wrap(
        torch.nn.Linear(1, 1), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1), local_params=()
    )
    parallel._gradients_differ = True
    with pytest.raises(RuntimeError, match="clipping is not supported with sharded tables"):
        parallel.step(clip_norm=1.0)
