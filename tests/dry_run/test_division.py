"""A dry run of ranks that divide weights, gradients, state or matrices, against closed forms."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from tests.dry_run.measured import dry, mini, peak_of
from tests.selection import others_in_full
from train_bench.cli import program
from train_bench.core.job import Device, Precision
from train_bench.dry_run import bound
from train_bench.dry_run.step import Step
from train_bench.launchers.deepspeed.config import Config as DeepSpeed
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.torchrun.config import Config as Torchrun
from train_bench.references.llama31_8b.model import Decoder

RANKS = 4
NUMBER = 4
"""Bytes of a number in fp32."""

DEEP = ("model.layers=3", "hyperparameters.max_sequence_length=2", "hyperparameters.global_batch_size=4")
"""Where weights and gradients are the peak."""


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return Decoder(mini("llama31_8b_mini").model)


def step_below(launcher: Any, *overrides: str, precision: Precision = Precision.fp32) -> Step:
    config = mini("llama31_8b_mini", *overrides)
    ways = {"together": launcher.together, "divided": launcher.divides, "sharing": launcher.sharing}
    ways |= {"reduces_cast": launcher.reduces_cast, "precision": precision}
    return dry(config, ranks=launcher.world_size, **ways)


def parts(model: nn.Module) -> int:
    """Bytes of the first rows of all weights."""
    return sum(-(-len(one) // RANKS) * one[0].numel() * NUMBER for one in model.parameters())


def counters(model: nn.Module) -> int:
    """Bytes of what AdamW keeps of each weight beside two tensors: how many steps it has taken."""
    return NUMBER * len(list(model.parameters()))


def test_fsdp_leaves_a_rank_its_part_of_everything_and_gathers_two_layers_beside_the_rest(
    model: Decoder,
) -> None:
    step = step_below(Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp))
    assert step.memory["weights"] == step.memory["gradients"] == parts(model)
    assert step.memory["optimizer"] == 2 * parts(model) + counters(model)
    every = sum(one.nbytes for one in model.parameters())
    layers = [sum(one.nbytes for one in layer.parameters()) for layer in model.layers]
    rest = every - sum(layers)
    seen = model.lm_head.weight.nbytes + model.norm.weight.nbytes
    last = model.layers[0].input_layernorm.weight.nbytes
    for number, whole in ((2, 1), (3, 2)):  # layers that are gathered when a second one has its gradients
        deep = step_below(Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp), *DEEP, f"model.layers={number}")
        assert deep.peak_phase == "backward"
        assert deep.peak["gathered"] == rest + seen + (whole + 2) * layers[0] - last, (
            "gradients of a layer, and those of the layer before that are sent"
        )
    assert (step.sharing, step.gathers, step.reduced) == (RANKS, 2 * every, every)
    assert step.undivided == 0, "it is built in shards and evaluated so"


def test_gradients_are_reduced_in_the_numerics_of_the_job_where_layers_compute_them_so() -> None:
    launchers = [Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp, reduce_fp32=wide) for wide in (True, False)]
    wide, narrow = (step_below(one, *DEEP, precision=Precision.bf16) for one in launchers)
    model = Decoder(mini("llama31_8b_mini", *DEEP).model)
    cast = sum(
        one.nbytes for name, one in model.named_parameters() if "norm" not in name and "embed" not in name
    )
    every = sum(one.nbytes for one in model.parameters())
    assert (wide.reduced, narrow.reduced) == (every, every - cast // 2)
    assert wide.gathers == narrow.gathers == 2 * narrow.reduced
    matrices = sum(one.nbytes for one in model.layers[0].parameters() if one.dim() > 1)
    assert sum(wide.peak.values()) - sum(narrow.peak.values()) == matrices // 2, "of what is sent of a layer"


def test_sets_that_a_gpu_holds_are_counted() -> None:
    held, none = (
        dry(mini("llama2_70b_lora_mini", f"data.workers={n}"), device=Device.cuda) for n in ("null", 0)
    )
    given = mini("llama2_70b_lora_mini")
    rows = given.train_samples + given.eval_samples + 1
    size = 2 * 4 * rows * given.data.sequence_length
    assert held.memory["besides"] - none.memory["besides"] == size
    assert sum(held.peak.values()) - sum(none.peak.values()) == size


def test_a_network_that_is_not_built_in_shards_is_whole_before_and_in_evaluations() -> None:
    config = mini("unet3d_mini")
    launcher = Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp)
    step = dry(config, ranks=RANKS, divided=launcher.divides)
    every = NUMBER * (step.trainable + step.frozen)
    assert step.undivided == every + step.memory["weights"] + step.memory["optimizer"]


def test_gradients_of_an_accumulation_are_shards_unless_they_are_reduced_once(model: Decoder) -> None:
    whole = sum(one.nbytes for one in model.parameters())
    accumulating = "hyperparameters.gradient_accumulation_steps=2"
    step = step_below(Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp), accumulating)
    assert step.memory["gradients"] == parts(model) >= step.peak["gradients"] > 0
    assert (step.gathers, step.reduced) == (4 * whole, 2 * whole), "in each of two micro-batches"
    once = step_below(Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp, reduce_once=True), accumulating)
    assert (once.gathers, once.reduced) == (4 * whole, whole)
    assert once.memory["gradients"] == whole >= once.peak["gradients"] > 0.9 * whole


@pytest.mark.parametrize("stage", others_in_full([0, 1, 2, 3], [2]))
def test_zero_divides_by_stage_and_updates_a_copy(model: Decoder, stage: int) -> None:
    step = step_below(DeepSpeed(nproc_per_node=RANKS, zero_stage=stage))
    whole = sum(one.nbytes for one in model.parameters())
    assert step.memory["weights"] == (parts(model) if stage == 3 else whole)
    assert step.memory["gradients"] == (parts(model) if stage >= 2 else whole)
    assert step.memory["optimizer"] == (3 * parts(model) if stage else 2 * whole) + counters(model)
    held = step.memory["weights"] + step.memory["optimizer"]
    assert step.undivided == (whole + held if stage == 3 else 0)


def test_ranks_that_divide_matrices_hold_their_rows_or_columns_and_all_norms(model: Decoder) -> None:
    step = step_below(Torchrun(nproc_per_node=RANKS, tensor_parallel=2))
    named = dict(model.named_parameters())
    norms = sum(one.nbytes for name, one in named.items() if "norm" in name)
    odd_row = named["lm_head.weight"][0].nbytes
    held = (sum(one.nbytes for one in named.values()) - norms + odd_row) // 2 + norms
    assert step.memory["weights"] == step.memory["gradients"] == step.reduced == held
    assert step.memory["optimizer"] == 2 * held + counters(model)
    assert step.undivided == 0, "it is built in shards"
    alone = step_below(Torchrun(nproc_per_node=2))
    assert alone.undivided == 0
    assert step.samples == alone.samples, "each of two groups takes half of the batch"
    assert step.global_batch_size == alone.global_batch_size
    assert step.memory["activations"] < alone.memory["activations"]
    sent = bound.bound_of(step, bound.Machine(network_gb_s=1.0)).seconds["network"]
    assert sent == pytest.approx(2 * 1 / 2 * held / 1e9), "an average over two groups"


def test_matrices_of_a_group_are_sharded_over_groups_and_copies_over_the_ranks_of_a_host(
    model: Decoder,
) -> None:
    plain = step_below(Torchrun(nproc_per_node=2, tensor_parallel=2))
    both = step_below(Torchrun(nproc_per_node=4, tensor_parallel=2, shard=Shard.fsdp))
    for kind in ("weights", "gradients", "optimizer"):
        assert both.memory[kind] == pytest.approx(plain.memory[kind] / 2, rel=0.01)
    two = step_below(Torchrun(nproc_per_node=2, shard=Shard.fsdp))
    hosts = step_below(Torchrun(nodes=2, nproc_per_node=2, shard=Shard.hsdp))
    assert hosts.memory["weights"] == two.memory["weights"]
    assert 2 * hosts.samples == two.samples
    gathers, reduced = hosts.gathers, hosts.reduced
    sent = bound.bound_of(hosts, bound.Machine(network_gb_s=1.0)).seconds["network"]
    assert sent == pytest.approx(((gathers + reduced) / 2 + reduced / 2) / 1e9), (
        "half is averaged over two copies"
    )


def test_a_rank_that_fits_a_step_but_not_all_weights_does_not_fit(model: Decoder) -> None:
    step = replace(step_below(Torchrun(nproc_per_node=RANKS, shard=Shard.fsdp)), undivided=3_000_000_000)
    assert not bound.bound_of(step, bound.Machine(memory_gb=2.9)).fits
    assert bound.bound_of(step, bound.Machine(memory_gb=3.0)).fits


@pytest.mark.full
def test_layers_that_are_computed_again_take_the_memory_that_torch_gives_out() -> None:
    again = mini("llama31_8b_mini", "activation_checkpointing=true", "model.layers=4")
    plain = mini("llama31_8b_mini", "model.layers=4")
    less, more = dry(again), dry(plain)
    measured = peak_of(again, less.samples)
    assert sum(less.peak.values()) == pytest.approx(measured, rel=0.1)
    assert measured < 0.7 * sum(more.peak.values())
    assert less.memory["activations"] < 0.5 * more.memory["activations"]
    shape, length = plain.model, plain.hyperparameters.max_sequence_length
    last_products = (
        2 * length * shape.layers * shape.intermediate * shape.width
    )  # nothing is kept of what they give
    again_computed = more.flop["layers"][0] - last_products
    assert less.flop_per_sample == more.flop_per_sample + again_computed


@pytest.mark.full
def test_blocks_that_keep_their_products_compute_none_again() -> None:
    again = "activation_checkpointing=true"
    plain, most, few = (
        dry(mini("flux1_mini", *words)) for words in ((), (again, "keep_products=true"), (again,))
    )
    assert plain.flop_per_sample == most.flop_per_sample < few.flop_per_sample
    assert few.memory["activations"] < most.memory["activations"] < plain.memory["activations"]
    assert "activation_checkpointing=true" in str(mini("flux1_mini", "keep_products=true").refuse())


def test_the_page_names_what_is_divided(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["benchmark=llama31_8b_mini", "launcher=torchrun", "--ranks=4"]
    assert program.command("plan")(["--dry", *words, "launcher.shard=fsdp"]) == 0
    told = capsys.readouterr().out
    assert "sharded: weights, gradients, optimizer's state" in told and "gathered" in told
    assert "unsharded on every rank" not in told
    whole = ["benchmark=unet3d_mini", "launcher=torchrun", "--ranks=4", "launcher.shard=fsdp"]
    assert program.command("plan")(["--dry", *whole]) == 0
    assert "unsharded on every rank: at construction and in evaluations" in capsys.readouterr().out
    assert program.command("plan")(["--dry", *words, "launcher.tensor_parallel=2"]) == 0
    told = capsys.readouterr().out
    assert "2 ranks form a tensor-parallel group" in told and "unsharded" not in told


def test_what_the_launcher_would_refuse_is_refused_dry(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dry", "benchmark=resnet_mini", "launcher=torchrun", "launcher.tensor_parallel=2", "--ranks=4"]
    assert program.command("plan")(words) != 0
    assert "is not for resnet_mini" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["launcher=deepspeed", "launcher.zero_stage=2", "launcher.nodes=4"],
        ["launcher=torchrun", "launcher.shard=fsdp", "launcher.nodes=4"],
    ],
)
def test_what_a_start_alone_needs_is_not_asked_for_dry(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that DeepSpeed is installed nor how hosts are found."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "deepspeed" else found(name)
    )
    assert program.command("plan")(["--dry", "benchmark=llama31_8b_mini", *words]) == 0
    assert "rank 0 of 4" in capsys.readouterr().out


def test_no_ranks_are_refused_dry(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.command("plan")(["--dry", "benchmark=resnet_mini", "launcher.nproc_per_node=0"]) != 0
    assert "launcher.nproc_per_node=0 are 0 ranks; both have to be at least 1" in capsys.readouterr().err
