"""A network that ranks build in shards starts from the weights of one that is built whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.launchers.small_decoder import decoder, one_rank
from tests.references.configs import flux1, gpt_oss_20b, llama2_70b_lora
from tests.references.several_ranks import FromFile, start
from train_bench.core.sharded_tensors import narrow_frozen, own_part, whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.filling import Fills
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.references.flux1.task import Task as FluxTask
from train_bench.references.gpt_oss_20b.task import Task as MixtureTask
from train_bench.references.llama2_70b_lora.task import Task as LoraTask
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts.decoder.weights import save_weights
from train_bench.references.parts.undrawn import undrawn

SHAPE = ("model.width=16", "model.head_size=4", "model.intermediate=24", "warm_up_steps=0")


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2, met through a file."""


class Grouped(FromFile, TensorParallel):
    """Two ranks share matrices, met through a file."""


def plain(_: Path) -> Any:
    return Task(decoder("warm_up_steps=0"))


def pretrained(folder: Path) -> Any:
    return Task(decoder("warm_up_steps=0", f"start_weights={folder / 'start.safetensors'}"))


def mixture(_: Path) -> Any:
    return MixtureTask(gpt_oss_20b("gpt_oss_20b_mini", *SHAPE))


def adapted(_: Path) -> Any:
    return LoraTask(llama2_70b_lora("llama2_70b_lora_mini", "warm_up_steps=0"))


def painted(_: Path) -> Any:
    return FluxTask(flux1("flux1_mini", "warm_up_steps=0"))


CASES = {case.__name__: case for case in (plain, pretrained, mixture, adapted, painted)}


def _rank(number: int, folder: Path, ranks: int, grouped: bool) -> None:
    parallel: Any = (
        Grouped(folder, rank=number, size=ranks, tensor_parallel=2)
        if grouped
        else Sharded(folder, rank=number, size=ranks)
    )
    for name, case in CASES.items():
        if grouped and name in ("mixture", "adapted", "painted"):
            continue  # have no plan for it
        task = case(folder)
        task.build(3, parallel)
        named = dict(task.model.named_parameters())
        found = {key: whole(one).cpu() for key, one in named.items()}
        held = sum(own_part(one.detach()).numel() for one in named.values())
        if number == 0:
            torch.save({"weights": found, "held": held}, folder / f"{name}.pt")
    parallel.leave()


@pytest.mark.full
@pytest.mark.parametrize(("ranks", "grouped"), [(2, False), (4, False), (2, True), (4, True)])
def test_weights_are_those_of_one_rank_bit_by_bit_however_many_share_them(
    ranks: int, grouped: bool, tmp_path: Path
) -> None:
    given = plain(tmp_path)
    given.build(11, one_rank())
    save_weights(given.model, tmp_path / "start.safetensors")
    start(_rank, tmp_path, ranks, grouped, ranks=ranks)
    for name in ("plain", "pretrained") if grouped else CASES:
        alone = CASES[name](tmp_path)
        alone.build(3, one_rank())
        found = torch.load(tmp_path / f"{name}.pt")
        named = dict(alone.model.named_parameters())
        assert {key: one.shape for key, one in found["weights"].items()} == {
            key: one.shape for key, one in named.items()
        }
        assert [key for key, one in named.items() if not torch.equal(one, found["weights"][key])] == []
        whole_size = sum(one.numel() for one in named.values())
        assert found["held"] < whole_size * (0.6 if grouped else 1.1 / ranks)


def drawn(make: Callable[[], nn.Module], kind: torch.dtype = torch.float32) -> nn.Module:
    """Built as by one rank that shards nothing and holds frozen weights in `kind`."""
    torch.manual_seed(0)
    fills = Fills()
    model = fills.construct(make)
    narrow_frozen(model, kind)
    model.to_empty(device="cpu")
    fills.draw(model)
    return model


def in_two_ways() -> nn.Module:
    """Draws that others replace, and buffers."""
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Embedding(9, 3), nn.Linear(7, 20))
    nn.init.xavier_uniform_(model[3].weight)
    nn.init.normal_(model[0].weight, std=0.3)
    nn.init.constant_(model[1].bias, 2.0)
    model.register_buffer("seen", torch.zeros(4))
    return model


def test_a_network_without_memory_is_filled_by_the_draws_of_its_constructors() -> None:
    found = drawn(in_two_ways)
    follows = torch.rand(3)
    torch.manual_seed(0)
    expected = in_two_ways()
    assert torch.equal(torch.rand(3), follows), "the generator goes on alike"
    state = found.state_dict()
    assert list(state) == list(expected.state_dict())
    assert all(torch.equal(state[name], one) for name, one in expected.state_dict().items())


def test_frozen_weights_that_are_held_in_bf16_are_drawn_as_all_others() -> None:
    def make() -> nn.Module:
        return in_two_ways().requires_grad_(False)

    found, kinds = drawn(make, torch.bfloat16).state_dict(), set()
    torch.manual_seed(0)
    for name, one in make().state_dict().items():
        kinds.add(found[name].dtype)
        assert torch.equal(found[name], one.to(found[name].dtype)), name
    assert kinds == {torch.float32, torch.bfloat16}


def test_a_network_whose_weights_are_given_is_not_drawn() -> None:
    torch.manual_seed(0)
    model = undrawn(in_two_ways)()
    found = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))
    assert model.get_parameter("1.bias").eq(2.0).all(), "constants are filled in"


def test_what_nothing_fills_is_nan() -> None:
    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2, 3))

    assert drawn(Left).weight.isnan().all()


def test_start_values_that_are_computed_are_refused() -> None:
    def make() -> nn.Module:
        return nn.Embedding(4, 3, padding_idx=1)  # sets one row to 0

    with pytest.raises(LaunchError, match=r"Embedding starts weight by aten\.fill_.* on \(3,\)"):
        drawn(make)
