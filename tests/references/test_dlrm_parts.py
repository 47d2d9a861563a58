"""The parts of DLRM: exact AUC, tables over ranks, dense network, learning rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import distributed, multiprocessing

from references.dlrm.model import Dense
from references.dlrm.quality import roc_auc
from references.dlrm.recipe import learning_rate
from references.dlrm.tables import Tables, place
from tests.references.one_rank import OneRank

ROWS = [50, 3, 20, 7]
BATCH = 8


@pytest.mark.parametrize("levels", [2, 10, 10**6])
def test_auc_is_that_of_scikit_learn_with_ties(levels: int) -> None:
    rng = np.random.default_rng(levels)
    labels = rng.random(5000) < 0.1
    scores = (rng.integers(0, levels, 5000) / levels + 0.2 * labels).astype(np.float32)
    assert roc_auc(scores, labels, OneRank()) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_auc_refuses_one_class_and_scores_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="0 positive"):
        roc_auc(np.zeros(3, np.float32), np.zeros(3, bool), OneRank())
    with pytest.raises(ValueError, match="diverged"):
        roc_auc(np.array([0, np.nan], np.float32), np.array([True, False]), OneRank())


def test_every_table_has_one_rank_and_the_largest_are_apart() -> None:
    placed = place([5, 100, 90, 1], 2)
    assert sorted(table for tables in placed for table in tables) == [0, 1, 2, 3]
    assert not any({1, 2} <= set(tables) for tables in placed)


def test_the_dense_part_has_the_parameters_of_the_full_benchmark() -> None:
    dense = Dense([13, 512, 256, 128], [1024, 1024, 512, 256, 1], 26)
    assert sum(weight.numel() for weight in dense.bottom.parameters()) == 171392
    assert sum(weight.numel() for weight in dense.top.parameters()) == 2197505


def test_the_rate_warms_up_stays_decays_and_freezes() -> None:
    rates = [
        learning_rate(step, base=8.0, warmup=4, decay_start=6, decay_steps=4)
        for step in (1, 4, 5, 6, 8, 9, 99)
    ]
    assert rates == [2.0, 8.0, 8.0, 8.0, 2.0, 0.5, 0.5]
    assert learning_rate(7, base=1.0, warmup=0, decay_start=0, decay_steps=0) == 1.0


def _table_gradients(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """Gradients of a rank's tables for the mean loss over the same global batch of any number of ranks."""
    generator = torch.Generator().manual_seed(1)
    indices = torch.stack([torch.randint(0, n, (BATCH,), generator=generator) for n in ROWS], dim=1)
    weights = torch.randn(BATCH, len(ROWS), 4, generator=generator)
    tables = Tables(ROWS, 4, seed=7, rank=rank, ranks=ranks)
    share = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    (tables(indices) * weights[share]).square().sum(dim=(1, 2)).mean().backward()
    return {name: weight.grad.coalesce().to_dense() for name, weight in tables.weights.items()}


def _one_of(rank: int, ranks: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.save(_table_gradients(rank, ranks), Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


# With eight ranks, four have no table.
@pytest.mark.parametrize("ranks", [2, 8])
def test_tables_over_ranks_get_the_gradients_of_one_rank(ranks: int, tmp_path: Path) -> None:
    multiprocessing.spawn(_one_of, (ranks, str(tmp_path)), nprocs=ranks)
    found: dict[str, torch.Tensor] = {}
    for rank in range(ranks):
        found |= torch.load(tmp_path / f"{rank}.pt", weights_only=True)
    wanted = _table_gradients(0, 1)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)
