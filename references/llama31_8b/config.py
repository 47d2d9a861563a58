"""Configuration of the decoder pretraining benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from train_bench.errors import RequestError
from train_bench.references.parts.decoder import config as decoder


@dataclass(slots=True, kw_only=True)
class Model(decoder.Model):
    """The shape of the network. Llama 3.1 8B: 32 layers of width 4096.

    padded_vocabulary   rows of the embedding and of the output layer where these are more than tokens; start weights
                        are cut to them
    rope_factor, low_frequency, high_frequency, old_context   what Llama 3.1 does to slow rotations (`model.py`)
    """

    padded_vocabulary: int | None = None
    rope_base: float = 500000.0
    rope_factor: float = 8.0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    old_context: int = 8192

    @property
    def rows(self) -> int:
        """Rows of the embedding and of the output layer."""
        return self.padded_vocabulary or self.vocabulary

    def check(self) -> None:
        """Raises `RequestError` for a shape that cannot be."""
        decoder.Model.check(self)
        if self.rows < self.vocabulary:
            raise RequestError(
                f"model.padded_vocabulary is {self.rows}; allowed are {self.vocabulary} (model.vocabulary) or more."
            )


@dataclass(slots=True, kw_only=True)
class Config(decoder.Config):
    """Decoder pretraining with Llama 3.1."""

    model: Model

    WARMUP_FROM: ClassVar[int] = 1
    """As NeMo's schedule, which the published reference has."""

    def refuse_tensor_parallel(self, ranks: int) -> str | None:
        """Heads and widths that so many ranks cannot share; rows of the vocabulary need not come out even."""
        for name in ("heads", "key_value_heads", "intermediate", "width"):
            size = getattr(self.model, name)
            if size % ranks:
                option = f"launcher.tensor_parallel={ranks}"
                return f"{option} does not divide benchmark.model.{name}={size}; choose a divisor."
        return None
