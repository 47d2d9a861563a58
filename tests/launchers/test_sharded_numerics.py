"""What FSDP2 gathers in bf16, when it reduces gradients, and that both leave the numbers of a step as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import fsdp as torch_fsdp

from tests.launchers.small_decoder import decoder, one_rank
from tests.references.configs import flux1, gpt_oss_20b, llama2_70b_lora
from tests.references.several_ranks import FromFile, start
from train_bench.core.job import Precision
from train_bench.core.sharded_tensors import own_part
from train_bench.launchers.parts import fsdp
from train_bench.launchers.parts.ddp import AUTOCAST
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.references.flux1.task import Task as FluxTask
from train_bench.references.gpt_oss_20b.task import Task as MixtureTask
from train_bench.references.llama2_70b_lora.task import Task as LoraTask
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts import arrays

STEPS = 3
BATCH = 4


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2, met through a file."""

    def __init__(self, folder: Path, **how: Any) -> None:
        self._met = torch.distributed.is_initialized()
        super().__init__(folder, **how)

    def _meet(self) -> None:
        if not self._met:
            super()._meet()


def plain(*more: str) -> Any:
    return Task(decoder("warm_up_steps=0", *more))


def plain_again() -> Any:
    return plain("activation_checkpointing=true")


def mixture(*more: str) -> Any:
    small = ("model.width=16", "model.head_size=4", "model.intermediate=24", "warm_up_steps=0")
    batch = f"hyperparameters.global_batch_size={BATCH}"
    return MixtureTask(gpt_oss_20b("gpt_oss_20b_mini", *small, batch, *more))


def mixture_again() -> Any:
    return mixture("activation_checkpointing=true")


def adapted(*more: str) -> Any:
    batch = f"hyperparameters.global_batch_size={BATCH}"
    return LoraTask(llama2_70b_lora("llama2_70b_lora_mini", "warm_up_steps=0", batch, *more))


def adapted_again() -> Any:
    return adapted("activation_checkpointing=true")


def adapted_drawn() -> Any:
    return adapted("start_weights=null", "start_weights_sha256=null")


def painted(*more: str) -> Any:
    batch = f"hyperparameters.global_batch_size={BATCH}"
    rate = "hyperparameters.opt_learning_rate_warmup_steps=0"
    return FluxTask(flux1("flux1_mini", "warm_up_steps=0", batch, rate, *more))


def painted_again() -> Any:
    return painted("activation_checkpointing=true")


def painted_again_in_part() -> Any:
    return painted("activation_checkpointing=true", "keep_products=true")


CASES = {
    one.__name__: one
    for one in (
        *(plain, plain_again, mixture, mixture_again),
        *(adapted, adapted_again, adapted_drawn, painted, painted_again, painted_again_in_part),
    )
}


def losses(task: Any, parallel: Any) -> list[float]:
    """The mean loss over ranks of each step, each of another batch."""
    task.build(1, parallel)
    found = []
    for step in range(STEPS):
        batch = task.synthetic(BATCH)
        parts = [batch] if isinstance(batch, torch.Tensor) else list(batch)
        shifted = [(one + 7 * step) % 69 for one in parts]
        mine = [one.chunk(parallel.data_ranks)[parallel.data_rank] for one in shifted]
        task.train_step(iter([mine[0] if isinstance(batch, torch.Tensor) else tuple(mine)]))
        found.append(float(parallel.mean(task.last_loss)))
    return found


def _rank(number: int, folder: Path) -> None:
    found: dict[str, Any] = {}
    for kind, casts in (("cast", AUTOCAST), ("wide", {})):
        fsdp.AUTOCAST = casts
        for name, case in CASES.items():
            parallel = Sharded(folder, rank=number, size=2, precision=Precision.bf16)
            task = case()
            found[f"{name} {kind}"] = losses(task, parallel)
            if name == "adapted":
                types = {each: str(one.dtype) for each, one in task.model.named_parameters()}
                found[f"types {kind}"] = types
    fsdp.AUTOCAST = AUTOCAST
    found["held"] = _held_while_accumulating(folder, number)
    task = LoraTask(llama2_70b_lora("llama2_70b_lora_mini", *tiny(folder)))
    task.build(1, Sharded(folder, rank=number, size=2))
    task.open_data()
    found["evaluated"] = [task.evaluate().metrics["eval_loss"] for _ in range(2)]
    found["trained on"] = task.samples_taken().evaluated
    task.close()
    (folder / f"found_{number}.json").write_text(json.dumps(found))
    task.parallel.leave()


def _held_while_accumulating(folder: Path, number: int) -> dict[str, Any]:
    """Numbers of gradients behind the first of two micro-batches, by `reduce_once`, and the loss of a later step."""
    found: dict[str, Any] = {}
    for once in (False, True):
        parallel = Sharded(folder, rank=number, size=2, reduce_once=once)
        task = plain("hyperparameters.gradient_accumulation_steps=2")
        task.build(1, parallel)
        batch = (task.synthetic(1) + number) % task.config.model.vocabulary
        with parallel.forward(last_microbatch=False):
            parallel.backward(task.forward(batch[:, :-1]).square().mean())
        gradients = [one.grad for one in task.model.parameters() if one.grad is not None]
        held = sum(own_part(one).numel() for one in gradients)
        with parallel.forward():
            parallel.backward(task.forward(batch[:, 1:]).square().mean())
        parallel.step()
        with torch.no_grad():
            found[str(once)] = [held, float(parallel.mean(task.forward(batch[:, 1:]).square().mean()))]
        found["weights"] = sum(own_part(one.detach()).numel() for one in task.model.parameters())
    return found


def tiny(folder: Path) -> tuple[str, ...]:
    """9 sequences in batches of 2: a rank has 3 batches and the other 2, without padding."""
    small = ("data.sequence_length=20", "data.sha256=null", "train_samples=8", "eval_samples=9")
    return (*small, f"data_dir={folder}", "data.eval_batch_size=2", "warm_up_steps=0", "data.workers=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks leave."""
    folder = tmp_path_factory.mktemp("numerics")
    rng = np.random.default_rng(0)
    splits = {}
    for split, count in (("train", 8), ("val", 9)):
        tokens = rng.integers(69, size=(count, 20)).astype(np.int32)
        splits[split] = {"tokens": tokens, "labels": tokens}
    arrays.write(llama2_70b_lora("llama2_70b_lora_mini", *tiny(folder)), folder, splits)
    start(_rank, folder, ranks=2)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    said = [json.loads((folder / f"found_{number}.json").read_text()) for number in range(2)]
    assert said[0]["trained on"] == [5, 5] and said[1]["trained on"] == [4, 4]
    assert said[0]["evaluated"] == said[1]["evaluated"]
    found: dict[str, Any] = said[0]
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_weights_that_are_gathered_in_bf16_give_the_losses_of_those_that_are_cast_bit_by_bit(
    name: str, found: Any
) -> None:
    assert found[f"{name} cast"] == found[f"{name} wide"]
    assert len(set(found[f"{name} cast"])) == STEPS
    if "again" in name:
        assert found[f"{name} cast"] == found[f"{name.split('_')[0]} cast"], (
            "the same numbers are computed again"
        )


@pytest.mark.full
def test_weights_that_are_not_trained_are_held_as_layers_cast_them(found: Any) -> None:
    types = found["types cast"]
    wide = {name for name, kind in types.items() if kind == "torch.float32"}
    assert wide == {name for name in types if "norm" in name or "embed" in name or "lora" in name}
    assert set(types.values()) == {"torch.float32", "torch.bfloat16"}
    assert set(found["types wide"].values()) == {"torch.float32"}


@pytest.mark.full
def test_gradients_are_in_shards_behind_every_micro_batch_or_with_reduce_once_behind_the_last(
    found: Any,
) -> None:
    held = found["held"]
    assert held["False"][0] == held["weights"] and held["True"][0] == 0
    assert held["False"][1] == pytest.approx(held["True"][1], rel=1e-6)


@pytest.mark.full
def test_an_evaluation_in_shards_is_that_of_one_rank(found: Any, folder: Path) -> None:
    alone = LoraTask(llama2_70b_lora("llama2_70b_lora_mini", *tiny(folder)))
    alone.build(1, one_rank())
    alone.open_data()
    expected = alone.evaluate().metrics["eval_loss"]
    alone.close()
    assert found["evaluated"] == pytest.approx([expected] * 2, rel=1e-6)


@pytest.mark.full
def test_what_a_step_casts_is_gathered_cast_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, the embedding and the router stay in float32; gradients are reduced in it."""
    gathered: dict[str, Any] = {}
    names: dict[int, str] = {}

    def noted(module: Any, *, mp_policy: Any = None, **_: Any) -> Any:
        for one in module if isinstance(module, list) else [module]:
            for name, _ in one.named_parameters(prefix=names[id(one)]):
                gathered.setdefault(
                    name, None if mp_policy is None else (mp_policy.param_dtype, mp_policy.reduce_dtype)
                )
        return module

    monkeypatch.setattr(torch_fsdp, "fully_shard", noted)
    monkeypatch.setattr(ShardedParallel, "_mesh", lambda _: {"shard": None})
    for case in (plain, mixture, adapted, painted):
        task = case()
        task.build(1, one_rank())
        gathered.clear()
        names.update({id(one): name for name, one in task.model.named_modules()})
        parallel = object.__new__(ShardedParallel)
        vars(parallel).update(size=2, device=torch.device("cpu"), _reduces_cast=False, _copies=None)
        parallel._shard(task.model, torch.bfloat16)
        assert gathered.keys() == dict(task.model.named_parameters()).keys()
        wide = {name for name, how in gathered.items() if how is None}
        assert wide == {name for name in gathered if "norm" in name or "embed" in name or "router" in name}
        assert {how for how in gathered.values() if how} == {(torch.bfloat16, torch.float32)}
