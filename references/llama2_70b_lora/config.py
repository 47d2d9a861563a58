"""Configuration of the benchmark that fine-tunes a decoder with low-rank adapters (LoRA).

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from train_bench import task
from train_bench.references.parts import data_config
from train_bench.references.parts.decoder import config as decoder


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "llama2_70b_lora"). Steps are steps of the global batch.

    lora_rank                           of the change of a projection
    lora_alpha                          a change is multiplied by `lora_alpha / lora_rank`
    opt_learning_rate_training_steps    where the rate would have decayed to 0
    opt_learning_rate_warmup_steps      in which the rate rises from 0 to the base
    """

    lora_rank: int = 16
    lora_alpha: float = 32
    opt_name: str = "adamw"
    opt_base_learning_rate: float
    opt_learning_rate_training_steps: int = 1024
    opt_learning_rate_warmup_steps: int = 0
    opt_learning_rate_decay_schedule: str = "cosine with linear warmup"
    opt_adamw_beta_1: float = 0.9
    opt_adamw_beta_2: float = 0.999
    opt_adamw_epsilon: float = 1e-8
    opt_adamw_weight_decay: float = 0.0001
    opt_gradient_clip_norm: float = 0.3


@dataclass(slots=True, kw_only=True)
class Model(decoder.Model):
    """The shape of the network. Llama 2 70B: 80 layers of width 8192.

    lora_dropout  probability with which an adapter does not see a number of its input while it is trained
    """

    vocabulary: int = 32000
    rope_base: float = 10000.0
    lora_dropout: float = 0.1


@dataclass(slots=True, kw_only=True)
class Data(data_config.ArrayData):
    """Source, format and loading of the sequences.

    origin           "packed" (JSON lines of token numbers) or "dialect" (generated): what `prepare` knows how to read
    sequence_length  tokens of a sample
    """

    origin: str
    sequence_length: int = 8192
    eval_batch_size: int = 1


@dataclass(slots=True, kw_only=True)
class Config(data_config.ArrayConfig):
    """Fine-tuning by adapters at any scale.

    start_weights         folder or file of the weights that adapters are trained for, in `data_dir` unless absolute, in
                          the format of `parts/decoder/weights.py`; for the dialect, without a folder it is a file of
                          this reference's own
    start_weights_sha256  digest that the file must have; None: not checked
    activation_checkpointing  a layer keeps its inputs alone, and is computed again in the backward pass: less memory,
                          a forward pass more, the same numbers
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    start_weights: str | None = None
    start_weights_sha256: str | None = None
    activation_checkpointing: bool = False

    BUILT_IN_SHARDS: ClassVar[bool] = True

    GENERATES: ClassVar[tuple[str, ...]] = ("dialect",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *data_config.ArrayConfig.TUNABLE,
        *("start_weights", "ruleset", "activation_checkpointing"),
    )
    """Rounds 5.1 to 6.1 define the same task."""

    def parameter_count(self, ranks: int) -> task.ParameterCount:
        """The adapters of the fused projections and of those after the heads are trained, the network is frozen."""
        shape, rank = self.model, self.hyperparameters.lora_rank
        heads = shape.heads * shape.head_size
        fused = heads + 2 * shape.key_value_heads * shape.head_size
        adapters = shape.layers * rank * (2 * shape.width + fused + heads)
        as_they_are = shape.width * (shape.rows + 2 * shape.layers + 1)  # embedding and norms
        return task.ParameterCount(
            trained=adapters, frozen=shape.parameters, frozen_cast=shape.parameters - as_they_are
        )

    def refuse(self) -> str | None:
        """Missing or contradictory fields, as a sentence."""
        if self.activation_checkpointing and self.compile_mode:
            return (
                "benchmark.activation_checkpointing=true was not tried with benchmark.compile=true; leave one of them "
                "out."
            )
        if self.start_weights is None and self.start_weights_sha256 is not None:
            return (
                f"{self.benchmark} starts from the weights with sha256 {self.start_weights_sha256}, and "
                "benchmark.start_weights names none. Leave benchmark.start_weights out."
            )
        if self.start_weights is None:
            return (
                f"{self.benchmark} starts from pretrained weights, and benchmark.start_weights names none. Fetch Llama "
                "2 70B with fused projections as safetensors, and set benchmark.start_weights=FOLDER, an absolute path "
                f"or one that begins in data_dir ({self.data_dir})."
            )
        return None

    def start_weights_path(self) -> Path | None:
        """Path of the start weights."""
        if self.start_weights is None:
            return None
        given = Path(self.start_weights)
        if self.data.origin == "dialect" and given.parent == Path():
            return Path(__file__).parent / given
        return Path(os.path.normpath(Path(self.data_dir or ".") / given))
