"""A decoder's loss in pieces, with weights that ranks divide, is that of one rank in one piece."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.launchers.small_decoder import built, decoder, evaluated, one_rank, trained
from tests.references.several_ranks import FromFile, start
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.references.parts.decoder import loss

STEPS = 5


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2, met through a file."""


class Together(FromFile, TensorParallel):
    """Ranks that divide matrices, met through a file."""


def _rank(number: int, folder: Path, way: str) -> None:
    loss.LOGITS = 5 * decoder().model.rows
    if way == "tensor_parallel":
        parallel: FromFile = Together(folder, rank=number, size=2, tensor_parallel=2)
    else:
        parallel = {"fsdp": Sharded, "ddp": FromFile}[way](folder, rank=number, size=2)
    task = built(parallel)
    found = [*trained(task, range(STEPS)), evaluated(task, batches=1) / 2]
    (folder / f"found_{number}.json").write_text(json.dumps(found))
    parallel.leave()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp", "fsdp", "tensor_parallel"])
def test_ranks_train_and_evaluate_in_pieces_as_one_does_in_one(way: str, tmp_path: Path) -> None:
    task = built(one_rank())
    expected = [*trained(task, range(STEPS)), evaluated(task, batches=1)]
    start(_rank, tmp_path, way, ranks=2)
    for number in range(2):
        found = json.loads((tmp_path / f"found_{number}.json").read_text())
        assert found == pytest.approx(expected, rel=1e-5)
