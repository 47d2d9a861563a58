"""GPT-OSS 20B beside Megatron's own code as Primus configures it for the reference: network, start weights, loss,
gradients, rates and what has no decay."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch import nn
from torch.nn import functional

from tests import needs
from tests.references.configs import composed
from tests.references.published_code import NEWEST, export
from tests.references.published_megatron import (
    megatron,
    same_projections,
    same_start_distribution,
    same_weights_without_decay,
)
from train_bench.references.gpt_oss_20b.config import Model
from train_bench.references.gpt_oss_20b.model import Decoder
from train_bench.references.parts.decoder.recipe import optimizer_of, schedule_of

PRIMUS = "a99a28f9a72dbae6310d3303a997b4eb8db663f9"
"""AMD-AGI/Primus when the logs of the reference were made, on 2026-02-20."""

MEGATRON = "847781764fe468c90caec16309deded245c1022c"
"""NVIDIA/Megatron-LM as the submodule of `PRIMUS` has it."""

TRAINING = "small_llm_moe_pretraining/primus/conf/gpt_oss_20B-pretrain.yaml"
PEERS = ("Megatron-LM", "Primus", "training")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    needs.clones(*PEERS),
]

ON_A_CPU: Mapping[str, Any] = {
    "no_persist_layer_norm": True,
    "masked_softmax_fusion": False,
    "use_cpu_initialization": True,
    "moe_token_dispatcher_type": "allgather",
    "expert_model_parallel_size": 1,
    "sequence_parallel": False,
    "bf16": False,
    "moe_use_legacy_grouped_gemm": False,
}
"""Kernels of a GPU and the division of work are left out, which change no number but by rounding."""

DEFAULTS: Mapping[str, Any] = {
    "heterogeneous_layers_config_path": None,
    "params_dtype": torch.float32,
    "overlap_p2p_comm": False,
    "fp8_param_gather": False,
    "init_method_xavier_uniform": False,
    "config_logger_dir": "",
    "is_hybrid_model": False,
}
"""Arguments that Primus' files of models leave to Megatron."""


def arguments(folder: Path) -> dict[str, Any]:
    """Megatron's arguments by Primus' chain of files, overridden by the reference's own."""
    models = export("Primus", PRIMUS, "primus/configs/models/megatron", folder)
    given = yaml.safe_load(export("training", NEWEST, TRAINING, folder).read_text())
    overrides = given["modules"]["pre_trainer"]["overrides"]
    return {
        **DEFAULTS,
        **_chain(models, "gpt_oss_20B.yaml"),
        **{key: _value(one) for key, one in overrides.items()},
    }


def _chain(folder: Path, name: str) -> dict[str, Any]:
    found = yaml.safe_load((folder / name).read_text()) or {}
    above = found.pop("extends", [])
    base: dict[str, Any] = {}
    for one in above:
        base |= _chain(folder, one)
    return base | {key: _value(value) for key, value in found.items()}


def _value(given: Any) -> Any:
    """Of `${NAME:default}` the default; numbers that yaml takes for words."""
    if not isinstance(given, str):
        return given
    whole = re.sub(r"\$\{\w+:([^}]*)\}", r"\1", given)
    try:
        return yaml.safe_load(whole) if "e" not in whole.lower() else float(whole)
    except ValueError:
        return whole


def ones(*size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """`torch.ones` on a CPU: the mask of a window names the GPU."""
    return torch.ones(*size, dtype=dtype)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Arguments of the reference, modules of Megatron by name, and its configuration of arguments."""
    folder = tmp_path_factory.mktemp("published")
    file = export("Megatron-LM", MEGATRON, "megatron/training/arguments.py", folder / "arguments")
    tree = ast.parse(file.read_text())
    name = "core_transformer_config_from_args"
    tree.body = [node for node in tree.body if getattr(node, "name", "") == name]
    with megatron(folder, MEGATRON) as load:
        config = load("megatron.core.transformer.transformer_config").TransformerConfig
        names = {"TransformerConfig": config, "dataclasses": dataclasses, "torch": torch, "F": functional}
        exec(compile(tree, str(file), "exec"), names)
        load("megatron.core.transformer.utils").torch = SimpleNamespace(**{**vars(torch), "ones": ones})
        load("megatron.core.transformer.moe.moe_utils").te_general_gemm = None  # undefined where no GPU's is
        yield SimpleNamespace(load=load, arguments=arguments(folder), config_of=names[name])


def configured(published: Any, **changes: Any) -> Any:
    """Megatron's configuration, with some arguments changed."""
    return published.config_of(SimpleNamespace(**{**published.arguments, **ON_A_CPU, **changes}))


def small() -> Model:
    """Four layers, of which two have windows, and eight experts."""
    shape = composed("gpt_oss_20b").model
    sizes = {"vocabulary": 50, "layers": 4, "width": 32, "heads": 4, "key_value_heads": 2, "head_size": 8}
    return dataclasses.replace(shape, **sizes, intermediate=24, experts=8, experts_per_token=2, window=5)


def networks(published: Any, *, larger: float) -> tuple[Decoder, nn.Module]:
    """Both networks of a small shape, ours with the weights of Megatron's."""
    shape = small()
    config = configured(
        published,
        num_layers=shape.layers,
        hidden_size=shape.width,
        ffn_hidden_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_query_groups=shape.key_value_heads,
        kv_channels=shape.head_size,
        num_experts=shape.experts,
        moe_router_topk=shape.experts_per_token,
        moe_ffn_hidden_size=shape.intermediate,
        window_size=(shape.window - 1, 0),
        window_attn_skip_freq=published.arguments["window_attn_skip_freq"][: shape.layers],
    )
    specs = published.load("megatron.core.models.gpt.gpt_layer_specs")
    spec = specs.get_gpt_layer_local_spec(
        shape.experts, False, config.qk_layernorm, normalization=config.normalization
    )
    torch.manual_seed(0)
    theirs = published.load("megatron.core.models.gpt.gpt_model").GPTModel(
        config,
        spec,
        shape.vocabulary,
        64,
        share_embeddings_and_output_weights=not published.arguments["untie_embeddings_and_output_weights"],
        position_embedding_type=published.arguments["position_embedding_type"],
        rotary_base=published.arguments["rotary_base"],
        rotary_percent=published.arguments["rotary_percent"],
    )
    ours = Decoder(shape)
    for weight in theirs.parameters():
        weight.data.add_(larger * torch.randn_like(weight))
    for name, weight in same_weights(theirs, shape).items():
        ours.get_parameter(name).data.copy_(weight)
    return ours, theirs


def same_weights(theirs: nn.Module, shape: Model) -> dict[str, torch.Tensor]:
    """Weights of Megatron's model under the names of ours."""
    found = same_projections(theirs, shape.key_value_heads, shape.head_size)
    for layer in range(shape.layers):
        for ours, theirs_name in (("gate_up_proj", "linear_fc1"), ("down_proj", "linear_fc2")):
            place = f"layers.{layer}.mlp.experts"
            parts = [
                found.pop(f"{place}.local_experts.{one}.{theirs_name}.weight") for one in range(shape.experts)
            ]
            found[f"{place}.{ours}"] = torch.stack([part.T for part in parts])
    return found


def test_the_shape_is_that_which_primus_configures(published: Any) -> None:
    config, shape = configured(published), composed("gpt_oss_20b").model
    assert (config.layernorm_epsilon, config.init_method_std) == (shape.norm_epsilon, shape.deviation)
    assert (config.num_layers, config.hidden_size) == (shape.layers, shape.width)
    assert (config.num_attention_heads, config.num_query_groups) == (shape.heads, shape.key_value_heads)
    assert (config.kv_channels, config.moe_ffn_hidden_size) == (shape.head_size, shape.intermediate)
    assert (config.num_moe_experts, config.moe_router_topk) == (shape.experts, shape.experts_per_token)
    assert config.window_size == [shape.window - 1, 0]
    assert config.window_attn_skip_freq == [1, 0] * (shape.layers // 2)
    assert (config.moe_shared_expert_intermediate_size, config.moe_router_pre_softmax) == (None, False)
    assert (config.add_bias_linear, config.add_qkv_bias, config.qk_layernorm) == (False, False, True)
    assert published.arguments["rotary_base"] == shape.rope_base
    assert not published.arguments["use_rope_scaling"] and published.arguments["rotary_percent"] == 1.0


def test_logits_losses_and_gradients_are_megatrons(published: Any) -> None:
    shape = small()
    ours, theirs = networks(published, larger=0.2)
    tokens = torch.randint(0, shape.vocabulary, (2, 41), generator=torch.Generator().manual_seed(1))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    places = torch.arange(40).expand(2, -1)
    mask = torch.ones(40, 40, dtype=torch.bool).triu(1)[None, None]
    expected, logits = theirs(inputs, places, mask), ours(inputs)
    assert torch.allclose(logits, expected, atol=1e-4 * float(expected.detach().abs().max()))
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    published_loss = theirs(inputs, places, mask, labels=labels).mean()
    assert torch.allclose(loss, published_loss, rtol=1e-5)
    loss.backward()
    published_loss.backward()
    for weight in theirs.parameters():
        weight.data = weight.grad if weight.grad is not None else torch.zeros_like(weight)
    for name, gradient in same_weights(theirs, shape).items():
        mine = ours.get_parameter(name).grad
        assert mine is not None
        assert float((mine - gradient).abs().max()) < 1e-4 * float(gradient.abs().max()), name


def test_start_weights_have_the_distribution_of_megatrons(published: Any) -> None:
    _, theirs = networks(published, larger=0.0)
    torch.manual_seed(3)
    ours = Decoder(small())
    same_start_distribution(ours, same_weights(theirs, small()))


def test_what_has_no_decay_is_what_megatron_gives_none(published: Any) -> None:
    config = composed("gpt_oss_20b").hyperparameters
    same_weights_without_decay(
        published.load("megatron.core.optimizer"),
        networks(published, larger=0.0),
        lambda model: optimizer_of(model, config),
    )
    given = published.arguments
    assert (config.opt_adamw_beta_1, config.opt_adamw_beta_2) == (given["adam_beta1"], given["adam_beta2"])
    assert (config.opt_adamw_epsilon, config.opt_adamw_weight_decay) == (
        given["adam_eps"],
        given["weight_decay"],
    )


def test_rates_are_megatrons(published: Any) -> None:
    """The scheduler counts samples, a global batch a step."""
    config = composed("gpt_oss_20b")
    values, schedule, given = config.for_ranks(1).hyperparameters, schedule_of(config), published.arguments
    batch = values.global_batch_size
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
    optimizer.param_groups[0].update(max_lr=given["lr"], min_lr=given["min_lr"])
    theirs = published.load("megatron.core.optimizer_param_scheduler").OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=given["lr"],
        min_lr=given["min_lr"],
        lr_warmup_steps=given["lr_warmup_iters"] * batch,
        lr_decay_steps=given["lr_decay_iters"] * batch,
        lr_decay_style=given["lr_decay_style"],
        start_wd=given["weight_decay"],
        end_wd=given["weight_decay"],
        wd_incr_steps=given["train_iters"] * batch,
        wd_incr_style="constant",
        use_checkpoint_opt_param_scheduler=False,
        override_opt_param_scheduler=True,
    )
    assert given["global_batch_size"] == batch
    for step in (0, 1, 64, 127, 128, 129, 5000, 600_000, 1_199_871, 1_199_872, 1_300_000):
        theirs.num_steps = step * batch
        assert schedule(step) == pytest.approx(theirs.get_lr(optimizer.param_groups[0]), rel=1e-6), step
