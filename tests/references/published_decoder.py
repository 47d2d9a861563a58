"""The decoders of `transformers`, in the shape of ours, and attention as one would write it down."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
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
    """`Qwen3MoeForCausalLM`, with weights of its own: the parts of the mixture without windows; attention and
    experts are computed plainly."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    return Qwen3MoeForCausalLM._from_config(
        Qwen3MoeConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            moe_intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.key_value_heads,
            head_dim=shape.head_size,
            num_experts=shape.experts,
            num_experts_per_tok=shape.experts_per_token,
            norm_topk_prob=True,
            max_position_embeddings=8192,
            rms_norm_eps=shape.norm_epsilon,
            use_cache=False,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
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


@torch.no_grad()
def slow_attention(
    attention: Any, shape: Model | Mixture, hidden: Tensor, cosine: Tensor, sine: Tensor
) -> Tensor:
    """A sample (length, width), one position of one head after the other; with the window and the norms of an attention
    that has them."""
    size, mixed = shape.head_size, torch.zeros(len(hidden), shape.heads * shape.head_size, dtype=hidden.dtype)
    window = getattr(attention, "window", None) or len(hidden)
    norms = {part: getattr(attention, f"{part}_norm", None) for part in "qk"}
    for head in range(shape.heads):
        shared = head // (shape.heads // shape.key_value_heads)
        of_query, of_key = (slice(part * size, (part + 1) * size) for part in (head, shared))
        query = _turned(_normed(norms["q"], hidden @ attention.q_proj.weight[of_query].T), cosine, sine)
        key = _turned(_normed(norms["k"], hidden @ attention.k_proj.weight[of_key].T), cosine, sine)
        value = hidden @ attention.v_proj.weight[of_key].T
        for place in range(len(hidden)):
            seen = range(max(0, place - window + 1), place + 1)
            scores = [float(query[place] @ key[other]) / math.sqrt(size) for other in seen]
            likely = torch.tensor([math.exp(score) for score in scores], dtype=hidden.dtype)
            mixed[place, of_query] = (likely / likely.sum()) @ value[seen.start : seen.stop]
    result: Tensor = mixed @ attention.o_proj.weight.T
    return result


def _normed(norm: nn.RMSNorm | None, heads: Tensor) -> Tensor:
    """(length, head size)."""
    if norm is None:
        return heads
    assert norm.eps is not None
    return heads / (heads.square().mean(dim=1, keepdim=True) + norm.eps).sqrt() * norm.weight


def _turned(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """(length, head size): each pair of numbers as a complex one."""
    half = heads.shape[1] // 2
    pair = torch.complex(heads[:, :half], heads[:, half:]) * torch.complex(cosine[:, :half], sine[:, :half])
    return torch.cat([pair.real, pair.imag], dim=1)
