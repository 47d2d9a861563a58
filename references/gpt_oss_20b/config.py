"""Configuration of the benchmark that pretrains a mixture of experts.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.references.parts.decoder import config as decoder


@dataclass(slots=True, kw_only=True)
class Model(decoder.Model):
    """The shape of the network. GPT-OSS 20B: 24 layers of width 2880 with 32 experts, of which a token has 4.

    intermediate       width inside an expert
    experts            of a layer
    experts_per_token  that the router chooses
    window             tokens that a token sees in every second layer, the first included: itself and those before
    gate_limit         what goes into the product inside an expert is cut off there
    deviation          of the normal that weights start from
    rope_factor, fast_turns, slow_turns, old_context   how rotations are slowed (`model.py`)
    """

    experts: int
    experts_per_token: int
    window: int
    gate_limit: float = 7.0
    deviation: float = 0.008
    rope_base: float = 150000.0
    rope_factor: float = 32.0
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    old_context: int = 4096


@dataclass(slots=True, kw_only=True)
class Config(decoder.Config):
    """Decoder pretraining with GPT-OSS."""

    model: Model
