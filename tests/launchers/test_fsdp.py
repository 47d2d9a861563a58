"""Ranks that divide the training state train, evaluate and keep as ranks do that hold all of it.
`test_sharded_checkpoint.py` has what they save."""

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
from train_bench.launchers.deepspeed.config import Config as DeepSpeedConfig
from train_bench.launchers.deepspeed.start import Launcher as DeepSpeed
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.torchrun.config import Config
from train_bench.launchers.torchrun.start import Launcher
from train_bench.references.flux1.config import Config as FluxConfig
from train_bench.references.llama31_8b.model import Decoder
from train_bench.run import replicas, weights

STEPS = 6


class Divided(FromFile, ShardedParallel):
    """Below FSDP2, met through a file."""


def _rank(number: int, folder: Path) -> None:
    parallel = Divided(folder, rank=number, size=2)
    task = built(parallel)
    found: dict[str, Any] = {"losses": trained(task, range(STEPS))}
    found["evaluated"] = evaluated(task, batches=2)
    task.save(folder / "saved")
    found["evaluated again"] = evaluated(task, batches=1)
    trained(task, range(STEPS, STEPS + 2))
    found["replicas"] = replicas.compare(parallel)
    found["kept"] = weights.write_weights(task, job(folder), parallel)
    again = built(parallel)
    again.load(folder / "saved")
    weights.put_back(again, [folder / "weights" / "run_0.safetensors"])
    found["put back"] = [evaluated(one, batches=1) for one in (task, again)]
    found["bytes"] = held_bytes(task)
    (folder / f"found_{number}.json").write_text(json.dumps(found))
    parallel.leave()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks say, and the folder that they left."""
    folder = tmp_path_factory.mktemp("divided")
    start(_rank, folder, ranks=2)
    said = [json.loads((folder / f"found_{number}.json").read_text()) for number in range(2)]
    return [{**one, "folder": folder} for one in said]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one rank says that holds everything."""
    task = built(one_rank())
    told: dict[str, Any] = {"losses": trained(task, range(STEPS)), "evaluated": evaluated(task, 4)}
    trained(task, range(STEPS, STEPS + 2))
    return told | {"bytes": held_bytes(task), "task": task}


@pytest.mark.full
def test_losses_and_evaluations_are_those_of_one_rank(found: Any, alone: Any) -> None:
    for one in found:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert one["evaluated"] == pytest.approx(alone["evaluated"], rel=1e-5)


@pytest.mark.full
def test_an_evaluation_behind_a_checkpoint_is_that_of_one_rank(found: Any, alone: Any) -> None:
    for one in found:
        assert one["evaluated again"] == pytest.approx(alone["evaluated"] / 2, rel=1e-5)


def _rank_of_a_whole_model(number: int, folder: Path) -> None:
    """Ranks evaluate two batches and one."""
    parallel = Divided(folder, rank=number, size=2)
    model, tokens = _model_and_tokens()
    forward = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    parallel.sync_buffers()
    for _ in range(2 - number):
        with parallel.inference():
            logits = forward(tokens)
    torch.save(logits, folder / f"logits_{number}.pt")
    parallel.leave()


def _model_and_tokens() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(1)
    return Decoder(decoder().model), torch.arange(10)[None]


@pytest.mark.full
def test_a_model_that_was_built_whole_is_evaluated_by_any_number_of_batches(tmp_path: Path) -> None:
    """No rank waits for another."""
    start(_rank_of_a_whole_model, tmp_path, ranks=2)
    model, tokens = _model_and_tokens()
    for number in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"logits_{number}.pt"), model(tokens).detach())


@pytest.mark.full
@pytest.mark.parametrize("what", ["weights", "state"])
def test_each_rank_holds_half(found: Any, alone: Any, what: str) -> None:
    held = [one["bytes"][what] for one in found]
    assert sum(held) == alone["bytes"][what]
    assert max(held) < 0.52 * alone["bytes"][what], "the odd row of a table of 69 lies on the first"


@pytest.mark.full
def test_the_weights_that_are_kept_are_whole(found: Any, alone: Any) -> None:
    assert list(found[0]["kept"]["files"]) == ["run_0.safetensors"]
    for one in found:
        assert one["put back"][0] == one["put back"][1]
    single = built(one_rank())
    weights.put_back(single, [found[0]["folder"] / "weights" / "run_0.safetensors"])
    for name, kept in single.weights().items():
        torch.testing.assert_close(kept, alone["task"].weights()[name], atol=1e-4, rtol=1e-3)


@pytest.mark.full
def test_replicas_are_told_of_the_whole_model(found: Any, alone: Any) -> None:
    seen = found[0]["replicas"]
    state = sum(len(of) for of in alone["task"].optimizer.state.values())
    assert (seen["equal"], seen["ranks"]) == (True, 2)
    assert seen["tensors"] == len(list(alone["task"].model.parameters())) + state


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ("resnet", "this benchmark uses lars. Use launcher=torchrun without it"),
        ("bert_mini", "this benchmark uses none of them"),
        ("dlrm_mini", "does not support dlrm_mini, which shards its tables itself"),
    ],
)
def test_what_cannot_be_divided_is_refused(benchmark: str, said: str) -> None:
    config = composed_config(f"benchmark={benchmark}").benchmark
    assert said in str(Launcher(Config(shard=Shard.fsdp, nproc_per_node=2)).refuse(config))


def test_a_model_that_is_compiled_is_refused_and_one_that_is_not_is_taken() -> None:
    launcher, config = Launcher(Config(shard=Shard.fsdp, nproc_per_node=2)), decoder()
    assert launcher.refuse(config) is None
    assert "benchmark.compile=true" in str(launcher.refuse(replace(config, compile=True)))


def test_copies_on_every_host_need_several() -> None:
    """With several, a copy is sharded over the ranks of its host."""
    alone, two = (Config(shard=Shard.hsdp, nodes=nodes, nproc_per_node=4) for nodes in (1, 2))
    assert "keeps a copy on every host, and launcher.nodes is 1" in str(Launcher(alone).refuse(decoder()))
    assert two.refuse_division(decoder()) is None and two.sharing == 4


@pytest.mark.parametrize(("option", "value"), [("reduce_once", True), ("reduce_fp32", False)])
def test_options_of_what_is_reduced_are_refused_where_nothing_is_sharded(option: str, value: bool) -> None:
    words: dict[str, Any] = {option: value, "nproc_per_node": 2}
    for launcher in (Launcher(Config(**words)), DeepSpeed(DeepSpeedConfig(**words))):
        assert f"launcher.{option} is for launcher.shard=fsdp" in str(launcher.refuse(decoder()))
    assert Launcher(Config(**words, shard=Shard.fsdp)).refuse(decoder()) is None


def test_what_a_round_wants_to_know_says_in_what_weights_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a network that is built whole are in float32."""
    monkeypatch.setattr(FluxConfig, "BUILT_IN_SHARDS", False)
    words = ("launcher=torchrun", "launcher.nproc_per_node=8", "launcher.shard=fsdp", "precision=bf16")
    for name, numerics in (("llama31_8b", "bfloat16"), ("flux1", "fp32")):
        told = make(f"benchmark={name}", *words, "drop_caches=true").jobs[0].announcement
        assert told["lowest_numerical_precision_in_comm"] == numerics


def test_deepspeed_divides_by_an_option_of_its_own() -> None:
    assert "launcher.zero_stage" in str(DeepSpeed(DeepSpeedConfig(shard=Shard.fsdp)).refuse(decoder()))
