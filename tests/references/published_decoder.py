"""The decoders of `transformers`, in the shape of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from train_bench.references.gpt_oss_20b.config import Model as Mixture
from train_bench.references.llama31_8b.config import Model as Slowed
from train_bench.references.parts.decoder.config import Model

Answers = dict[str, Tensor]
"""Logits, the loss and the gradients of a network."""


def decoder(shape: Model) -> Any:
    """`LlamaForCausalLM`, with weights of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rotations: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_base}
    if isinstance(shape, Slowed):
        rotations |= {
            "rope_type": "llama3",
            "factor": shape.rope_factor,
            "low_freq_factor": shape.low_frequency,
            "high_freq_factor": shape.high_frequency,
            "original_max_position_embeddings": shape.old_context,
        }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.key_value_heads,
            head_dim=shape.head_size,
            max_position_embeddings=2 * shape.old_context if isinstance(shape, Slowed) else 8192,
            rms_norm_eps=shape.norm_epsilon,
            tie_word_embeddings=False,
            rope_parameters=rotations,
        )
    )


def mixture(shape: Mixture) -> Any:
    """`GptOssForCausalLM`, with weights of its own; its attention and its experts are computed plainly."""
    from transformers import GptOssConfig, GptOssForCausalLM

    return GptOssForCausalLM._from_config(
        GptOssConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.key_value_heads,
            head_dim=shape.head_size,
            num_local_experts=shape.experts,
            num_experts_per_tok=shape.experts_per_token,
            sliding_window=shape.window,
            max_position_embeddings=round(shape.old_context * shape.rope_factor),
            rms_norm_eps=shape.norm_epsilon,
            swiglu_limit=shape.gate_limit,
            use_cache=False,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": shape.rope_base,
                "factor": shape.rope_factor,
                "beta_fast": shape.fast_turns,
                "beta_slow": shape.slow_turns,
                "truncate": False,
                "original_max_position_embeddings": shape.old_context,
            },
        ),
        attn_implementation="eager",
        experts_implementation="eager",
    )


def answers(model: torch.nn.Module, tokens: Tensor, named: Callable[[str], str] = str) -> Answers:
    """Logits, the loss, and the gradients by their published names."""
    said = model(tokens[:, :-1])
    logits = said if isinstance(said, Tensor) else said.logits
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    gradients = {named(name): one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {"logits": logits.detach(), "loss": loss.detach(), **gradients}


def same_but_for_rounding(ours: Answers, theirs: Answers, truth: Answers) -> None:
    """Each answer of both is as near to that in double as rounding allows."""
    assert ours.keys() == theirs.keys() == truth.keys()
    for name, exact in truth.items():
        scale = float(exact.abs().max())
        off = [float((one[name].double() - exact).abs().max()) / scale for one in (ours, theirs)]
        assert max(off) < 2e-5, (name, off)
