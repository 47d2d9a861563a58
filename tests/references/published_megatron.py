"""NeMo's and Megatron's own code of the decoders' references, on a CPU."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Optional, Union
from unittest.mock import MagicMock

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional

from tests import needs
from tests.references.published_code import export, importing

NEMO = "633cb602777bffefbe12066b0c915c87e7b469e9"
"""NVIDIA/NeMo v2.1.0, which the Dockerfile of llama31_8b checks out."""

MEGATRON = "7c00175e6b24b3cd835d21a9d287c35a07e275b3"
"""NVIDIA/Megatron-LM core_r0.11.0, which the same file checks out."""

MODELS = "nemo/collections/llm/gpt/model"
NEEDS_NVCC = "megatron.core.inference.unified_memory"
PEERS = ("NeMo", "Megatron-LM")

clones = needs.clones(*PEERS)


@contextmanager
def megatron(folder: Path, commit: str = MEGATRON) -> Iterator[Any]:
    """A function that imports a module of Megatron by name, with one process in each of its groups."""
    export("Megatron-LM", commit, "megatron/core", folder)
    with pytest.MonkeyPatch.context() as patch, importing(folder, NEEDS_NVCC) as load:
        patch.setattr(torch.cuda, "current_device", lambda: "cpu")
        patch.setattr(torch, "compile", lambda function: function)
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        state = load("megatron.core.parallel_state")
        try:
            state.initialize_model_parallel(1, 1)
            tracker = load("megatron.core.tensor_parallel.random").CudaRNGStatesTracker
            patch.setattr(tracker, "fork", lambda *_: nullcontext())
            yield load
        finally:
            state.destroy_model_parallel()
            distributed.destroy_process_group()


def nemo_configs(load: Callable[[str], Any], folder: Path) -> SimpleNamespace:
    """NeMo's configurations of GPT and Llama, without the rest of its modules, which need GPUs."""
    export("NeMo", NEMO, MODELS, folder)
    specs = load("megatron.core.models.gpt.gpt_layer_specs")
    names: dict[str, Any] = {
        "Annotated": Annotated,
        "Callable": Callable,
        "Literal": Literal,
        "Optional": Optional,
        "Union": Union,
        "dataclass": dataclass,
        "torch": torch,
        "F": functional,
        "math": math,
        "logging": MagicMock(),
        "io": SimpleNamespace(IOMixin=object),
        "HAVE_TE": False,
        "TransformerConfig": load("megatron.core.transformer.transformer_config").TransformerConfig,
        "ModuleSpec": load("megatron.core.transformer.spec_utils").ModuleSpec,
        "MCoreGPTModel": load("megatron.core.models.gpt.gpt_model").GPTModel,
        "_grad_accum_fusion_available": False,
        "gpt_forward_step": None,
        "gpt_data_step": None,
        "gpt_layer_specs": specs,
    }
    for file, wanted in (("base.py", _of_gpt), ("llama.py", _of_llama)):
        tree = ast.parse((folder / MODELS / file).read_text())
        tree.body = [node for node in tree.body if wanted(getattr(node, "name", ""))]
        exec(compile(tree, file, "exec"), names)
    return SimpleNamespace(**names)


def _of_gpt(name: str) -> bool:
    return name in ("GPTConfig", "local_layer_spec", "default_layer_spec")


def _of_llama(name: str) -> bool:
    return (name.startswith("Llama") and "Config" in name) or name == "apply_rope_scaling"


def nemo_schedule(folder: Path) -> Any:
    """NeMo's class of the schedule."""
    place = export("NeMo", NEMO, "nemo/core/optim/lr_scheduler.py", folder).parent
    absent = ("nemo", "nemo.core", "nemo.core.config", "nemo.utils", "nemo.utils.model_utils")
    with importing(place, *absent) as load:
        return load("lr_scheduler").CosineAnnealing


def same_projections(theirs: nn.Module, groups: int, head_size: int) -> dict[str, torch.Tensor]:
    """Weights of a Megatron model under the names of ours, with projections of queries, keys and values apart."""
    found: dict[str, torch.Tensor] = {}
    for name, weight in theirs.named_parameters():
        place = name.removeprefix("decoder.").replace("self_attention", "self_attn")
        if "linear_qkv" in place:
            rows = weight.unflatten(0, (groups, -1, head_size))
            parts = {"q": rows[:, :-2], "k": rows[:, -2:-1], "v": rows[:, -1:]}
            found |= {
                place.replace("linear_qkv", f"{key}_proj"): one.flatten(0, 2) for key, one in parts.items()
            }
        else:
            found[_renamed(place)] = weight
    return found


def same_weights(theirs: nn.Module, groups: int, head_size: int) -> dict[str, torch.Tensor]:
    """The same of a network without experts, gate and linear part apart."""
    found: dict[str, torch.Tensor] = {}
    for place, weight in same_projections(theirs, groups, head_size).items():
        if "linear_fc1" in place:
            parts = zip(("gate_proj", "up_proj"), weight.chunk(2), strict=True)
            found |= {place.replace("linear_fc1", name): part for name, part in parts}
        else:
            found[place.replace("linear_fc2", "down_proj")] = weight
    return found


def _renamed(place: str) -> str:
    for theirs, ours in (
        ("embedding.word_embeddings", "embed_tokens"),
        ("output_layer", "lm_head"),
        ("final_layernorm", "norm"),
        ("pre_mlp_layernorm", "post_attention_layernorm"),
        ("linear_proj", "o_proj"),
        ("_layernorm.weight", "_norm.weight") if ".q_" in place or ".k_" in place else ("", ""),
    ):
        place = place.replace(theirs, ours)
    return place


def same_start_distribution(ours: nn.Module, theirs: dict[str, torch.Tensor]) -> None:
    """Start weights by our names: vectors are equal, matrices have the same deviation, drawn anew."""
    for name, weight in theirs.items():
        mine = ours.get_parameter(name)
        if mine.dim() == 1:
            assert torch.equal(mine, weight), name
        else:
            assert torch.isclose(mine.std(), weight.std(), rtol=6 * mine.numel() ** -0.5), name


def same_weights_without_decay(
    optimizers: Any, models: Iterable[nn.Module], optimizer_of: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    """The weights that our optimizer does not decay, of both networks, are those that Megatron's rule names."""
    rates = {"lr_mult": 1.0, "lr": 1e-3, "min_lr": 1e-4, "decoupled_lr": None, "decoupled_min_lr": None}
    for model in models:
        groups = optimizers._get_param_groups([model], None, None, **rates)
        plain = {id(one) for group in groups if group["wd_mult"] == 0.0 for one in group["params"]}
        made = optimizer_of(model).param_groups
        assert {id(one) for group in made if group["weight_decay"] == 0.0 for one in group["params"]} == plain
        assert plain == {id(one) for name, one in model.named_parameters() if "norm" in name}
    assert optimizers.Adam is torch.optim.AdamW
