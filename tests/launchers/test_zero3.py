"""Ranks below ZeRO stage 3 train, evaluate and keep as one rank does that holds everything."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import needs
from tests.launchers.small_decoder import built, decoder, evaluated, one_rank, trained
from tests.references.several_ranks import start
from tests.run.fakes import job
from train_bench.launchers.deepspeed.config import Config
from train_bench.launchers.deepspeed.zero3 import DividedWeights
from train_bench.run import weights

STEPS = 20
RANKS = 2
WARM = "warm_up_steps=2"
CLIPPED = "hyperparameters.opt_gradient_clip_norm=0.1"


def _rank(number: int, folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
    parallel = DividedWeights(job(folder, launcher_config={"zero_stage": 3}, nproc_per_node=RANKS))
    task = built(parallel, CLIPPED, WARM)
    found: dict[str, Any] = {"losses": trained(task, range(STEPS))}
    found["bytes"] = _held_bytes(task)
    found["evaluated"] = evaluated(task, batches=number)
    found["gathered"] = _held_bytes(task)["weights"]
    found["after"] = trained(task, range(STEPS, STEPS + 2))
    found["evaluated again"] = evaluated(task, batches=number + 1)
    found["kept"] = weights.write_weights(task, job(folder), parallel)
    again = built(parallel, CLIPPED)
    again.parallel.sync_buffers()
    weights.put_back(again, [folder / "weights" / "run_0.safetensors"])
    found["put back"] = evaluated(again, batches=number + 1)
    (folder / f"found_{number}.json").write_text(json.dumps(found))
    parallel.leave()


def _held_bytes(task: Any) -> dict[str, int]:
    """Of this rank. Two names of the same memory count once."""
    zero = task.parallel._engine.optimizer
    pieces = (*zero.fp16_partitioned_groups_flat, *zero.fp32_partitioned_groups_flat)
    state = [one for of in task.optimizer.state.values() for one in of.values() if one.dim()]
    return {
        "weights": sum(one.nbytes for one in task.model.parameters()),
        "pieces": sum({one.data_ptr(): one.nbytes for one in pieces}.values()),
        "gradients": zero.grad_partitions_flat_buffer.nbytes,
        "state": sum(one.nbytes for one in state),
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks say. DeepSpeed compiles an operator by the `ninja` of this environment."""
    folder = tmp_path_factory.mktemp("zero3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        start(_rank, folder, port, ranks=RANKS)
    return [json.loads((folder / f"found_{number}.json").read_text()) for number in range(RANKS)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one rank says that holds everything."""
    task = built(one_rank(), CLIPPED)
    told: dict[str, Any] = {"losses": trained(task, range(STEPS)), "evaluated": evaluated(task, 1)}
    told |= {"after": trained(task, range(STEPS, STEPS + 2)), "evaluated again": evaluated(task, 3)}
    return told | {"weights": sum(one.nbytes for one in task.model.parameters())}


@needs.launcher("deepspeed")
@pytest.mark.full
def test_losses_and_evaluations_are_those_of_one_rank(found: Any, alone: Any) -> None:
    """After a warm-up that is undone. The first rank has no batch to evaluate, and then one where the other has two."""
    for one in found:
        for what in ("losses", "evaluated", "after", "evaluated again"):
            assert one[what] == pytest.approx(alone[what], rel=1e-5)


@needs.launcher("deepspeed")
@pytest.mark.full
def test_each_rank_holds_half_and_all_weights_for_an_evaluation(found: Any, alone: Any) -> None:
    whole = alone["weights"]
    for one in found:
        assert one["bytes"] == {"weights": 0, "pieces": whole, "gradients": whole / 2, "state": whole}
        assert one["gathered"] == whole


@needs.launcher("deepspeed")
@pytest.mark.full
def test_the_weights_that_are_kept_are_whole_and_can_be_put_back(found: Any) -> None:
    assert list(found[0]["kept"]["files"]) == ["run_0.safetensors"]
    for one in found:
        assert one["put back"] == one["evaluated again"]


def test_what_was_not_tried_or_is_not_right_is_refused() -> None:
    config = Config(zero_stage=3, nproc_per_node=RANKS)
    assert config.refuse_division(decoder()) is None
    assert "benchmark.compile=true" in str(config.refuse_division(decoder("compile=true")))
    adagrad = decoder("hyperparameters.opt_name=adagrad")
    assert "use launcher.zero_stage=2" in str(config.refuse_division(adagrad))
    for taken in (decoder("compile=true"), adagrad):
        assert Config(zero_stage=2).refuse_division(taken) is None
