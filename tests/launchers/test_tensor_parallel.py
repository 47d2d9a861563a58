"""Ranks that divide matrices among them train and evaluate as one rank does that holds all of it.
`test_sharded_checkpoint.py` has what they save and keep."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_campaigns import composed_config, make
from tests.launchers.small_decoder import built, decoder, evaluated, held_bytes, one_rank, trained
from tests.references.several_ranks import FromFile, start
from tests.run.fakes import job
from train_bench.core.job import Precision
from train_bench.core.sharded_tensors import own_part
from train_bench.errors import LaunchError, RequestError
from train_bench.launchers.deepspeed.config import Config as DeepSpeedConfig
from train_bench.launchers.deepspeed.start import Launcher as DeepSpeed
from train_bench.launchers.parts import tensor_parallel
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.launchers.torchrun.config import Config
from train_bench.launchers.torchrun.start import Launcher
from train_bench.run import replicas

STEPS = 20
CLIPPED = "hyperparameters.opt_gradient_clip_norm=0.1"
RANKS, TOGETHER = 4, 2


class Grouped(FromFile, TensorParallel):
    """One rank of two groups, met through a file."""


def _rank(number: int, folder: Path) -> None:
    parallel = Grouped(folder, rank=number, size=RANKS, tensor_parallel=TOGETHER)
    task = built(parallel, CLIPPED)
    found: dict[str, Any] = {"part": [parallel.data_rank, parallel.data_ranks]}
    found["losses"] = trained(task, range(STEPS))
    found["evaluated"] = evaluated(task, batches=parallel.data_rank + 1) / TOGETHER
    found["bytes"] = held_bytes(task)
    found["replicas"] = replicas.compare(parallel)
    if number == RANKS - 1:
        own_part(task.model.get_parameter("lm_head.weight").data)[0, 0] += 1
    found["changed"] = replicas.compare(parallel)
    (folder / f"found_{number}.json").write_text(json.dumps(found))
    parallel.leave()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What four ranks say."""
    folder = tmp_path_factory.mktemp("grouped")
    start(_rank, folder, ranks=RANKS)
    return [json.loads((folder / f"found_{number}.json").read_text()) for number in range(RANKS)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one rank says that holds everything."""
    task = built(one_rank(), CLIPPED)
    told: dict[str, Any] = {"losses": trained(task, range(STEPS)), "evaluated": evaluated(task, 3)}
    return told | {"bytes": held_bytes(task), "task": task}


@pytest.mark.full
def test_neighbours_take_the_same_part_of_every_batch(found: Any) -> None:
    assert [one["part"] for one in found] == [[0, 2], [0, 2], [1, 2], [1, 2]]


@pytest.mark.full
def test_losses_and_evaluations_are_those_of_one_rank(found: Any, alone: Any) -> None:
    """Gradients are clipped; one group evaluates one batch and the other two, and neither waits for the other."""
    for one in found:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert one["evaluated"] == pytest.approx(alone["evaluated"], rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("what", "times"), [("weights", 1), ("state", 2)])
def test_each_rank_holds_half_of_the_matrices_and_all_of_the_norms(
    found: Any, alone: Any, what: str, times: int
) -> None:
    named = dict(alone["task"].model.named_parameters())
    norms = sum(one.nbytes for name, one in named.items() if "norm" in name)
    odd_row = named["lm_head.weight"][0].nbytes
    for rank, one in enumerate(found):
        matrices = times * (sum(each.nbytes for each in named.values()) - norms)
        odd = times * odd_row * (0.5 if rank % TOGETHER == 0 else -0.5)
        assert one["bytes"][what] == matrices / 2 + odd + times * norms


@pytest.mark.full
def test_groups_hold_the_same_model_and_one_that_does_not_is_found(found: Any, alone: Any) -> None:
    seen, changed = found[0]["replicas"], found[0]["changed"]
    state = sum(len(of) for of in alone["task"].optimizer.state.values())
    assert (seen["equal"], seen["ranks"]) == (True, RANKS)
    assert seen["tensors"] == len(list(alone["task"].model.parameters())) + state
    assert (changed["equal"], changed["first"]) == (False, "lm_head.weight")
    assert changed["largest_difference"] == pytest.approx(1.0)


def refusal(
    benchmark: str = "llama31_8b_mini", *overrides: str, ranks: int = 2, **options: Any
) -> str | None:
    config = composed_config(f"benchmark={benchmark}", *overrides).benchmark
    return Launcher(Config(nproc_per_node=ranks, **options)).refuse(config)


@pytest.mark.parametrize(
    ("benchmark", "overrides", "options", "said"),
    [
        ("resnet_mini", (), {}, "launcher.tensor_parallel=2 is not for resnet_mini"),
        ("gpt_oss_20b_mini", (), {}, "is not for gpt_oss_20b_mini"),
        ("llama31_8b_mini", (), {"ranks": 3}, "launcher.tensor_parallel=2 does not divide 3 ranks"),
        ("llama31_8b_mini", (), {"tensor_parallel": 0}, "launcher.tensor_parallel=0 does not divide 2 ranks"),
        (
            "llama31_8b_mini",
            (),
            {"shard": Shard.fsdp},
            "leaves nothing to launcher.shard=fsdp, which shards over 2",
        ),
        ("llama31_8b_mini", (), {"shard": Shard.hsdp, "nodes": 2}, "leaves nothing to launcher.shard=hsdp"),
        ("llama31_8b_mini", ("benchmark.compile=true",), {}, "is not tested with benchmark.compile=true"),
        (
            "llama31_8b_mini",
            ("benchmark.model.key_value_heads=1",),
            {},
            "does not divide benchmark.model.key_value_heads=1; choose a divisor",
        ),
        ("llama31_8b_mini", ("benchmark.model.intermediate=25",), {}, "benchmark.model.intermediate=25"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    benchmark: str, overrides: Any, options: dict[str, Any], said: str
) -> None:
    assert said in str(refusal(benchmark, *overrides, **{"tensor_parallel": 2} | options))


def test_a_decoder_is_divided() -> None:
    assert refusal(tensor_parallel=2) is None
    assert refusal(tensor_parallel=2, shard=Shard.fsdp, ranks=4) is None
    hosts = Config(nodes=2, nproc_per_node=4, tensor_parallel=2, shard=Shard.hsdp)
    assert hosts.refuse_division(decoder()) is None


def test_losses_that_would_be_scaled_are_refused() -> None:
    asked = replace(
        job(Path("out"), nproc_per_node=2, launcher_config={"tensor_parallel": 2}), precision=Precision.fp16
    )
    with pytest.raises(LaunchError, match="precision=fp16"):
        TensorParallel(asked, rank=0, local_rank=0, size=2)


def test_deepspeed_does_not_divide_matrices() -> None:
    config = DeepSpeedConfig(nproc_per_node=2, tensor_parallel=2)
    assert "launcher.tensor_parallel=2 is for launcher=torchrun" in str(DeepSpeed(config).refuse(decoder()))


@pytest.mark.full
def test_a_batch_is_divided_among_groups() -> None:
    words = ("benchmark=llama31_8b_mini", "launcher=torchrun", "launcher.nproc_per_node=4")
    batch = "benchmark.hyperparameters.global_batch_size"
    plan = make(*words, "launcher.tensor_parallel=2", f"{batch}=2")
    assert plan.jobs[0].launcher_config["tensor_parallel"] == 2
    with pytest.raises(RequestError, match="into 2 groups of ranks x 1"):
        make(*words, "launcher.tensor_parallel=2", f"{batch}=3")


def test_what_a_round_wants_to_know_names_the_division() -> None:
    words = ("benchmark=llama31_8b", "launcher=torchrun", "launcher.nproc_per_node=8", "precision=bf16")
    told = make(*words, "launcher.tensor_parallel=4", "drop_caches=true").jobs[0].announcement
    assert told["tensor_parallelism"] == 4
    assert told["lowest_numerical_precision_in_comm"] == "bfloat16"


def test_gradients_are_averaged_over_groups_and_clipped_by_the_norm_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two groups of two ranks, of which each other one has the same gradients: a sum over groups is twice its part.
    Nothing of the model is divided, so that the norm is that of this rank."""
    monkeypatch.setattr(tensor_parallel.dist, "all_reduce", lambda part, group: part.mul_(len(group)))
    parallel = object.__new__(TensorParallel)
    model = torch.nn.Linear(2, 1, bias=False)
    vars(parallel).update(rank=3, size=4, _together=2, _model=model, _alike="ab", _group="a")
    parallel._optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert (parallel.data_rank, parallel.data_ranks) == (1, 2)
    for clip_norm, moved in ((None, [3.0, 4.0]), (1.0, [0.6, 0.8])):
        model.weight.data.zero_()
        model.weight.grad = torch.tensor([[3.0, 4.0]])
        assert parallel.step(clip_norm=clip_norm)
        torch.testing.assert_close(-model.weight.data, torch.tensor([moved]), atol=1e-5, rtol=0)
        assert model.weight.grad is None
