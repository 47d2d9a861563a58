"""Dropout of data-parallel ranks: each drops other values of its part of a batch, and every start drops the same."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import pytest
import torch

from tests.references import configs
from tests.references.one_rank import OneRank
from tests.references.tasks import mark, same, weights
from train_bench.plan import discover

DROPS = {
    "bert": ("model.dropout=0.5", "model.layers=1", "model.width=16", "model.intermediate=16"),
    "llama2_70b_lora": ("model.lora_dropout=0.5", "hyperparameters.opt_learning_rate_warmup_steps=0"),
    "rnnt": ("model.joint_dropout=0.5", "model.encoder=16", "model.joint=16"),
}
"""References that drop values, with more of it and smaller networks."""


def trained(reference: str, folder: Path, rank: int, taken: int = 0) -> list[torch.Tensor]:
    """Weights of a rank of two after two iterations, behind as many as are `taken`, on one and the same batch."""
    config = getattr(configs, reference)(
        f"{reference}_mini",
        "warm_up_steps=0",
        "hyperparameters.global_batch_size=4",
        f"data_dir={folder}",
        *DROPS[reference],
    )
    task = importlib.import_module(f"train_bench.references.{reference}.task").Task(config)
    task.build(1, OneRank(rank=rank, size=2))
    task._batches = itertools.repeat(task.synthetic(task.local_batch_size))
    task.iterations = taken
    for iteration in (1, 2):
        task.train_until(mark(4 * (taken + iteration)))
    return weights(task)


@pytest.mark.parametrize("reference", DROPS)
def test_two_ranks_drop_different_values_of_the_same_batch(reference: str, tmp_path: Path) -> None:
    first, again, second = (trained(reference, tmp_path, rank) for rank in (0, 0, 1))
    assert same(first, again), "a run can be repeated"
    assert not same(first, second)


@pytest.mark.parametrize("reference", DROPS)
def test_other_iterations_drop_other_values_of_the_same_batch(reference: str, tmp_path: Path) -> None:
    first, later = (trained(reference, tmp_path, 0, taken) for taken in (0, 5))
    assert not same(first, later)


def test_no_other_reference_drops_values() -> None:
    """Else it has to be among those that are tried here."""
    folder = Path(__file__).parents[2] / "references"
    drop = {
        name
        for name in discover.references()
        if any("dropout" in path.read_text().lower() for path in (folder / name).glob("*.py"))
    }
    assert drop == DROPS.keys()
