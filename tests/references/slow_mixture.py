"""gpt_oss_20b computed one token of one head and of one expert after the other, in double precision, from the list of
its configuration alone: gpt_oss_20B-pretrain.yaml over Primus' gpt_oss_20B, deepseek_v2_base and llama_base.

`otherwise` names points of that list to compute in another way, each of them one that a similar network has."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

POINTS = (
    "no norm of queries and keys",
    "norms behind the rotation",
    "no window",
    "window of one token less",
    "window in the other layers",
    "base 10,000",
    "neighbouring numbers rotated together",
    "cosine and sine larger",
    "a sink",
    "softmax before the choice",
    "gates cut off",
    "steeper gate",
    "one added to the linear half",
    "gate and linear half exchanged",
    "epsilon 1e-5",
    "embedding as output layer",
)


class SlowMixture:
    """The network of `weights`, by their names in ours."""

    def __init__(self, shape: Any, weights: Mapping[str, Array], otherwise: Collection[str] = ()) -> None:
        assert set(otherwise) <= set(POINTS)
        self.shape, self.weights, self.otherwise = shape, weights, otherwise
        self.epsilon = 1e-5 if "epsilon 1e-5" in otherwise else 1e-6

    def logits(self, tokens: list[int]) -> Array:
        """(tokens, vocabulary)."""
        stream = [self.weights["embed_tokens.weight"][token].copy() for token in tokens]
        for layer in range(self.shape.layers):
            attended = self.attention(
                layer, [self.norm(one, f"layers.{layer}.input_layernorm") for one in stream]
            )
            stream = [one + more for one, more in zip(stream, attended, strict=True)]
            normed = [self.norm(one, f"layers.{layer}.post_attention_layernorm") for one in stream]
            stream = [one + self.experts(layer, at) for one, at in zip(stream, normed, strict=True)]
        output = "embed_tokens" if "embedding as output layer" in self.otherwise else "lm_head"
        return np.stack([self.weights[f"{output}.weight"] @ self.norm(one, "norm") for one in stream])

    def norm(self, vector: Array, name: str) -> Array:
        return (
            vector
            / math.sqrt(float(vector @ vector) / len(vector) + self.epsilon)
            * self.weights[f"{name}.weight"]
        )

    def rotate(self, head: Array, position: int) -> Array:
        size, turned = len(head), np.zeros_like(head)
        base = 10_000.0 if "base 10,000" in self.otherwise else self.shape.rope_base
        scale = 1 + 0.1 * math.log(32) if "cosine and sine larger" in self.otherwise else 1.0
        for number in range(size // 2):
            angle = position * base ** (-2 * number / size)
            pair = (number, number + size // 2)
            if "neighbouring numbers rotated together" in self.otherwise:
                pair = (2 * number, 2 * number + 1)
            one, other = head[pair[0]], head[pair[1]]
            turned[pair[0]] = scale * (one * math.cos(angle) - other * math.sin(angle))
            turned[pair[1]] = scale * (other * math.cos(angle) + one * math.sin(angle))
        return turned

    def prepared(self, head: Array, position: int, name: str) -> Array:
        """A head of a query or a key."""
        if "no norm of queries and keys" in self.otherwise:
            return self.rotate(head, position)
        if "norms behind the rotation" in self.otherwise:
            return self.norm(self.rotate(head, position), name)
        return self.rotate(self.norm(head, name), position)

    def first_key(self, layer: int, position: int) -> int:
        """The first token that one at `position` attends to: 128 before it, of the shape 129 with itself."""
        windowed = (layer % 2 == 0) != ("window in the other layers" in self.otherwise)
        if not windowed or "no window" in self.otherwise:
            return 0
        before = self.shape.window - 1 - ("window of one token less" in self.otherwise)
        return max(0, position - before)

    def attention(self, layer: int, stream: list[Array]) -> list[Array]:
        shape, name, size = self.shape, f"layers.{layer}.self_attn", self.shape.head_size
        parts = {part: [self.weights[f"{name}.{part}_proj.weight"] @ one for one in stream] for part in "qkv"}
        outputs = []
        for position in range(len(stream)):
            mixed = np.zeros(shape.heads * size)
            for head in range(shape.heads):
                shared = head // (shape.heads // shape.key_value_heads)
                mine, theirs = (
                    slice(head * size, (head + 1) * size),
                    slice(shared * size, (shared + 1) * size),
                )
                query = self.prepared(parts["q"][position][mine], position, f"{name}.q_norm")
                keys = range(self.first_key(layer, position), position + 1)
                scores = [
                    float(query @ self.prepared(parts["k"][key][theirs], key, f"{name}.k_norm"))
                    / math.sqrt(size)
                    for key in keys
                ]
                whole = sum(map(math.exp, scores)) + ("a sink" in self.otherwise)
                for key, score in zip(keys, scores, strict=True):
                    mixed[mine] += math.exp(score) / whole * parts["v"][key][theirs]
            outputs.append(self.weights[f"{name}.o_proj.weight"] @ mixed)
        return outputs

    def experts(self, layer: int, vector: Array) -> Array:
        name = f"layers.{layer}.mlp"
        scores = self.weights[f"{name}.router.weight"] @ vector
        chosen = sorted(range(len(scores)), key=lambda expert: -scores[expert])[
            : self.shape.experts_per_token
        ]
        among = range(len(scores)) if "softmax before the choice" in self.otherwise else chosen
        whole = sum(math.exp(scores[expert]) for expert in among)
        output = np.zeros_like(vector)
        for expert in chosen:
            both = vector @ self.weights[f"{name}.experts.gate_up_proj"][expert]
            inner = np.array([self.gated(*pair) for pair in zip(*np.split(both, 2), strict=True)])
            share = math.exp(scores[expert]) / whole
            output += share * (inner @ self.weights[f"{name}.experts.down_proj"][expert])
        return output

    def gated(self, gate: float, linear: float) -> float:
        if "gate and linear half exchanged" in self.otherwise:
            gate, linear = linear, gate
        if "gates cut off" in self.otherwise:
            gate, linear = min(gate, 0.05), max(min(linear, 0.05), -0.05)
        steepness = 1.702 if "steeper gate" in self.otherwise else 1.0
        linear += "one added to the linear half" in self.otherwise
        return gate / (1 + math.exp(-steepness * gate)) * linear
