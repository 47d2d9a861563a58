"""The lower bound of a rank's memory is that of the network as it is built, and what cannot fit is refused with a
change that would."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.dry_run.measured import dry, mini
from tests.fake_campaigns import composed_config, make
from train_bench.campaign import refusals
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Precision
from train_bench.core.sharded_tensors import casts_weights
from train_bench.errors import RequestError
from train_bench.launchers.deepspeed.config import Config as DeepSpeed
from train_bench.launchers.inline.config import Config as Inline
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.slurm.config import Config as Slurm
from train_bench.launchers.torchrun.config import Config as Torchrun
from train_bench.plan.memory import memory_floor, refuse_memory
from train_bench.references.flux1.model import Flux
from train_bench.references.gpt_oss_20b.model import Decoder as Mixture
from train_bench.references.llama2_70b_lora.model import Decoder as Fused
from train_bench.references.llama2_70b_lora.model import add_adapters
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.parts.recommendation.tables import Tables

CARD = 80_000_000_000


def config_of(name: str, **hyperparameters: Any) -> Any:
    config = composed_config(f"benchmark={name}").benchmark
    return replace(config, hyperparameters=replace(config.hyperparameters, **hyperparameters))


def adapted(config: Any) -> nn.Module:
    network = Fused(config.model)
    add_adapters(network, rank=config.hyperparameters.lora_rank, alpha=1.0, dropout=0.0)
    return network


@pytest.mark.parametrize(
    ("name", "network"),
    [
        *(
            (name, lambda config: Decoder(config.model))
            for name in ("llama31_8b", "llama31_405b", "llama31_8b_mini")
        ),
        *((name, lambda config: Mixture(config.model)) for name in ("gpt_oss_20b", "gpt_oss_20b_mini")),
        *((name, adapted) for name in ("llama2_70b_lora", "llama2_70b_lora_mini")),
        *((name, lambda config: Flux(config.model)) for name in ("flux1", "flux1_mini")),
    ],
)
def test_parameters_are_counted_as_the_network_has_them(name: str, network: Any) -> None:
    config = config_of(name)
    with torch.device("meta"):
        built = network(config)
    weights = list(built.parameters())
    count = config.parameter_count(8)
    assert count.trained == sum(one.numel() for one in weights if one.requires_grad)
    frozen = [one for one in weights if not one.requires_grad]
    assert count.frozen == sum(one.numel() for one in frozen)
    assert all(one.element_size() == count.frozen_bytes for one in frozen)
    cast = [one for module in built.modules() if casts_weights(module) for one in module.parameters(False)]
    assert count.frozen_cast == sum(one.numel() for one in cast if not one.requires_grad)


@pytest.mark.parametrize("name", ["dlrm_mini", "dlrm_dcnv2_mini"])
def test_the_fullest_rank_is_counted_where_ranks_hold_different_tables(name: str) -> None:
    model = config_of(name).model
    held = []
    for rank in range(3):
        device = torch.device("cpu")
        tables = Tables(model.rows, model.bottom[-1], seed=1, rank=rank, ranks=3, device=device)
        held.append(sum(one.numel() for one in tables.parameters()))
    assert len(set(held)) > 1
    assert config_of(name).parameter_count(3).local == max(held)


@pytest.mark.parametrize(
    "launcher",
    [
        Torchrun(nproc_per_node=4),
        Torchrun(nproc_per_node=4, shard=Shard.fsdp),
        Slurm(nodes=4, shard=Shard.fsdp),
        Slurm(nodes=2, nproc_per_node=2, shard=Shard.hsdp),
        Torchrun(nproc_per_node=4, tensor_parallel=2),
        Torchrun(nproc_per_node=4, tensor_parallel=2, shard=Shard.fsdp),
        *(DeepSpeed(nproc_per_node=4, zero_stage=stage) for stage in (1, 2, 3)),
    ],
    ids=str,
)
def test_what_a_rank_holds_is_what_the_dry_plan_counts(launcher: Any) -> None:
    ways = {"together": launcher.together, "divided": launcher.divides, "sharing": launcher.sharing}
    step = dry(mini("llama31_8b_mini"), ranks=4, **ways)
    floor = memory_floor(config_of("llama31_8b_mini"), launcher, Precision.fp32)
    assert floor is not None
    for kind in ("weights", "gradients", "optimizer"):
        assert getattr(floor, kind) == pytest.approx(step.memory[kind], rel=0.03)
        assert getattr(floor, kind) <= step.memory[kind]
    assert floor.total <= max(sum(step.peak.values()), step.undivided)
    assert bool(floor.whole) == bool(step.undivided)


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_frozen_weights_are_held_in_the_numerics_of_the_job_by_ranks_that_shard_them(
    precision: Precision,
) -> None:
    """16 bits of what layers cast, and 32 of embedding and norms."""
    launcher = Torchrun(nproc_per_node=4, shard=Shard.fsdp)
    ways = {"divided": launcher.divides, "sharing": launcher.sharing, "precision": precision}
    step = dry(mini("llama2_70b_lora_mini"), ranks=4, **ways)
    config = config_of("llama2_70b_lora_mini")
    floor = memory_floor(config, launcher, precision)
    assert floor is not None
    assert floor.weights <= step.memory["weights"] == pytest.approx(floor.weights, rel=0.03)
    count, narrow = config.parameter_count(4), precision is Precision.bf16
    assert floor.weights == (4 * (count.trained + count.frozen) - 2 * narrow * count.frozen_cast) // 4
    whole = memory_floor(config, Torchrun(nproc_per_node=4), precision)
    assert whole is not None and whole.weights == 4 * (count.trained + count.frozen)


@pytest.mark.parametrize(
    ("config", "launcher", "said"),
    [
        (
            config_of("llama31_8b"),
            Inline(),
            "llama31_8b needs at least 128 GB (weights 32.1, gradients 32.1, optimizer state 64.2) on the device of a "
            "rank, which has 80 GB (memory_gb=80). Set launcher=torchrun launcher.nproc_per_node=2 "
            "launcher.shard=fsdp, which needs at least 64.2 GB; `train-bench plan --dry` has the peak. Nothing was "
            "started.",
        ),
        (
            config_of("llama31_8b"),
            Torchrun(nproc_per_node=8),
            "Set launcher.shard=fsdp, which needs at least ",
        ),
        (config_of("llama31_8b"), Slurm(nproc_per_node=8), "Set launcher.shard=fsdp, which needs at least "),
        (
            config_of("llama31_8b"),
            DeepSpeed(nproc_per_node=8),
            "Set launcher.zero_stage=1, which needs at least ",
        ),
        (config_of("llama31_8b"), Torchrun(nproc_per_node=8, shard=Shard.fsdp), None),
        (
            config_of("llama31_405b"),
            Torchrun(nodes=4, nproc_per_node=8, shard=Shard.hsdp),
            "Set launcher.nodes=",
        ),
        (config_of("llama31_8b_mini"), Inline(), None),
        (config_of("resnet"), Inline(), None),
        (
            config_of("dlrm_dcnv2"),
            Inline(),
            "Set launcher=torchrun launcher.nproc_per_node=8, which needs at least 41.4 GB",
        ),
        (config_of("dlrm_dcnv2"), Torchrun(nproc_per_node=8), None),
    ],
)
def test_what_cannot_fit_is_refused_with_a_change_that_would(
    config: Any, launcher: Any, said: str | None
) -> None:
    refused = refuse_memory(config, launcher, Precision.fp32, CARD, "memory_gb=80")
    assert (refused is None) == (said is None)
    assert (said or "") in (refused or "")


def test_the_change_divides_the_batch() -> None:
    """16 samples are no 3 of 8 ranks, and 1 sample is none of 2."""
    refused = refuse_memory(
        config_of("llama31_8b", global_batch_size=1), Inline(), Precision.fp32, CARD, "memory_gb=80"
    )
    assert "launcher.tensor_parallel=" in str(refused)
    assert "fsdp" not in str(refused)


def test_no_change_is_proposed_where_none_would_fit() -> None:
    refused = refuse_memory(config_of("llama31_8b"), Inline(), Precision.fp32, 1_000_000, "memory_gb=0.001")
    assert "use a device with more memory" in str(refused)


NAMED = ("benchmark=llama31_8b", "drop_caches=true", "device=cuda")


@pytest.mark.parametrize("launcher", ["inline", "slurm"])
def test_a_named_device_is_asked_for_on_every_launcher(launcher: str) -> None:
    campaign = Campaign.of(make(*NAMED, f"launcher={launcher}", "memory_gb=80"))
    assert "which has 80 GB (memory_gb=80)" in next(refusals.memory(campaign))
    assert not list(refusals.memory(Campaign.of(make(*NAMED, f"launcher={launcher}", "memory_gb=200"))))


@pytest.mark.parametrize("size", ["0", "-1", "inf"])
def test_a_device_has_memory(size: str) -> None:
    campaign = Campaign.of(make("benchmark=resnet_mini", f"memory_gb={size}"))
    assert list(refusals.memory(campaign)) == [
        f"memory_gb is {float(size):g}; it has to be a finite number of GB above 0."
    ]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), True),
        (("launcher=torchrun", "launcher.nproc_per_node=2"), True),
        (("launcher=slurm",), False),
        (("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=10.0.0.1"), False),
        (("device=cpu",), False),
        (("benchmark=llama31_8b_mini",), False),
    ],
)
def test_gpus_of_this_host_count_where_all_ranks_are_on_it(
    words: tuple[str, ...], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def smallest(python: str) -> tuple[int, int]:
        calls.append(python)
        return 1, 85_000_000_000

    monkeypatch.setattr(refusals, "_gpus", smallest)
    said = list(refusals.memory(Campaign.of(make(*NAMED, *words))))
    assert bool(calls) is asked
    assert ["has 85 GB (the smallest GPU here)" in one for one in said] == [True] * asked


def test_a_host_without_gpus_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_gpus", None)
    monkeypatch.setattr(refusals, "gpu_list", SimpleNamespace(are_here=lambda: False))
    assert not list(refusals.memory(Campaign.of(make("benchmark=llama31_8b", "drop_caches=true"))))


def test_a_campaign_that_cannot_fit_is_refused_before_its_data_are_missed() -> None:
    with pytest.raises(RequestError, match=r"which has 80 GB \(memory_gb=80\)"):
        refusals.refuse(Campaign.of(make(*NAMED, "device=cpu", "memory_gb=80")))
