"""Configuration of the benchmark that pretrains a mixture of experts.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.references.parts.decoder import config as decoder


@dataclass(slots=True, kw_only=True)
class Model(decoder.Model):
    """The shape of the network. GPT-OSS 20B: 24 layers of width 2880 with 32 experts, of which a token uses 4.

    intermediate       width inside an expert
    experts            of a layer
    experts_per_token  that the router chooses
    window             tokens that one attends to in the first layer and every second one: itself and those before
    deviation          of the normal that weights start from
    """

    experts: int
    experts_per_token: int
    window: int
    deviation: float = 0.008
    norm_epsilon: float = 1e-6
    rope_base: float = 150000.0

    @property
    def feed_forward_parameters(self) -> int:
        """Of a layer: router, experts, and the norms of the heads of queries and keys."""
        expert = 3 * self.width * self.intermediate
        return self.experts * (self.width + expert) + 2 * self.head_size


@dataclass(slots=True, kw_only=True)
class Config(decoder.Config):
    """Decoder pretraining with GPT-OSS."""

    model: Model
