"""Configuration of the benchmark that generates images from prompts.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from train_bench import task
from train_bench.errors import RequestError

PERIOD = 262144
"""Samples from one evaluation to the next, before they are rounded up to whole batches."""

UNROUNDED = ("training-5.1.0", "training-6.0.0")
"""Rounds whose rule file wants `PERIOD` itself as `evaluation_frequency`, whatever the batch."""


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "flux1"). Steps are steps of the global batch.

    opt_learning_rate_warmup_steps   in which the rate rises to the base, where it stays
    evaluation_frequency             samples between evaluations; default: what the rule file of the round asks for,
                                     and not logged under mini rules
    """

    opt_name: str = "adamw"
    opt_base_learning_rate: float
    opt_learning_rate_warmup_steps: int
    opt_adamw_beta_1: float = 0.9
    opt_adamw_beta_2: float = 0.95
    opt_adamw_epsilon: float = 1e-8
    opt_adamw_weight_decay: float = 0.1
    opt_gradient_clip_norm: float = 1.0
    evaluation_frequency: int | None = None


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the transformer. FLUX.1: 19 double and 38 single blocks of width 3072 with 24 heads.

    channels       of a latent
    latent_size    its rows and its columns
    patch          rows and columns of a latent that are one image token
    text_length    tokens of an encoded prompt
    text_width     numbers in each of them (T5-XXL: 4096)
    pooled_width   numbers in the pooled encoding of a prompt (CLIP-L: 768)
    width          of a token
    double_blocks  layers in which image and text tokens have weights of their own
    single_blocks  layers behind these, in which they share them
    mlp_ratio      width inside a feed-forward part, in widths of a token
    axes           numbers of a head that are rotated by the axes of a position; the first is 0 for every token here
    theta          base of the rotations
    time_width     numbers in the sinusoidal embedding of the time
    deviation      of the normal that the embeddings of time and pooled prompt start from
    """

    channels: int = 16
    latent_size: int = 32
    patch: int = 2
    text_length: int = 256
    text_width: int = 4096
    pooled_width: int = 768
    width: int
    heads: int
    double_blocks: int
    single_blocks: int
    mlp_ratio: int = 4
    axes: list[int] = field(default_factory=lambda: [16, 56, 56])
    theta: float = 10000.0
    time_width: int = 256
    deviation: float = 0.02

    @property
    def parameters(self) -> int:
        """Number of parameters of `model.Flux`; all linear layers have biases."""
        width, inner, patch = self.width, self.mlp_ratio * self.width, self.channels * self.patch**2
        norms = 2 * (width // self.heads)

        def linear(inputs: int, outputs: int) -> int:
            return (inputs + 1) * outputs

        embedders = sum(linear(size, width) for size in (self.time_width, self.pooled_width, width, width))
        ends = (
            linear(patch, width)
            + linear(self.text_width, width)
            + linear(width, 2 * width)
            + linear(width, patch)
        )
        stream = linear(width, 6 * width) + linear(width, 3 * width) + linear(width, width) + norms
        double = 2 * (stream + linear(width, inner) + linear(inner, width))
        single = (
            linear(width, 3 * width + inner) + linear(width + inner, width) + linear(width, 3 * width) + norms
        )
        return embedders + ends + self.double_blocks * double + self.single_blocks * single

    def check(self) -> None:
        """Raises `RequestError` for sizes that cannot be."""
        if self.width % self.heads or self.width // self.heads != sum(self.axes):
            raise RequestError(
                f"model.width {self.width} over model.heads {self.heads} has to be the sum of model.axes "
                f"{list(self.axes)}, which is {sum(self.axes)}."
            )
        if len(self.axes) != 3 or any(one % 2 or one < 2 for one in self.axes):
            raise RequestError(f"model.axes is {list(self.axes)}; allowed are three even numbers from 2 on.")
        if self.latent_size % self.patch:
            raise RequestError(
                f"model.latent_size {self.latent_size} is not a multiple of model.patch {self.patch}; images are cut "
                "into whole patches."
            )
        if self.time_width % 2:
            raise RequestError(
                f"model.time_width is {self.time_width}; sines and cosines need an even number."
            )


@dataclass(slots=True, kw_only=True)
class Data:
    """Source, use and loading of encoded images and prompts.

    origin           "preprocessed" (the reference's encoded data sets, as Hugging Face `datasets` saves them on disk)
                     or "mixture" (generated): what `prepare` knows how to read
    train_folder, eval_folder, empty_folder  folders of `source` with training and validation data set, and with the
                     encodings of the empty prompt
    shift, scale     a latent z is trained on as (z - shift) * scale
    drop_prompts     share of training samples that get the empty prompt
    timesteps        an evaluation sample's time is its stored timestep over this number
    sha256           digest that the prepared data together must have; null: not checked
    verify           hash the prepared files whenever they are opened; else only their sizes are compared
    eval_batch_size  samples per rank in an evaluation step
    workers          loader processes per rank; 0 loads in the training process, null suits the machine
    prefetch         batches that each worker holds ready
    permute_labels   every training sample gets the prompt of another one: nothing can be learnt from prompts
    """

    origin: str
    train_folder: str = "cc12m_preprocessed"
    eval_folder: str = "coco_preprocessed"
    empty_folder: str = "empty_encodings"
    shift: float = 0.1159
    scale: float = 0.3611
    drop_prompts: float = 0.1
    timesteps: int = 8
    sha256: str | None = None
    verify: bool = False
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """Text to image by a rectified flow, at any scale.

    warm_up_steps  taken on synthetic batches before the clock and then undone
    activation_checkpointing  a block keeps its inputs alone, and is computed again in the backward pass: less memory,
                   a forward pass more, the same numbers
    keep_products  with activation_checkpointing, what matrix products and attention give is kept, too: more memory,
                   hardly more computation than without, the same numbers
    """

    model: Model
    data: Data
    hyperparameters: Hyperparameters
    warm_up_steps: int = 2
    activation_checkpointing: bool = False
    keep_products: bool = False

    GENERATES: ClassVar[tuple[str, ...]] = ("mixture",)

    BUILT_IN_SHARDS: ClassVar[bool] = True

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("ruleset", "warm_up_steps", "activation_checkpointing", "keep_products"),
    )
    """Rounds 5.1 to 6.1 define the same task."""

    def parameter_count(self, ranks: int) -> task.ParameterCount:
        """All of it is trained."""
        return task.ParameterCount(trained=self.model.parameters)

    def for_ranks(self, ranks: int) -> Config:
        """With the evaluation frequency that the round's rule file asks for."""
        given = self.hyperparameters
        if given.evaluation_frequency is not None or not self.ruleset.startswith("training-"):
            return self
        batch = given.global_batch_size
        rounded = PERIOD if self.ruleset in UNROUNDED else math.ceil(PERIOD / batch) * batch
        return replace(self, hyperparameters=replace(given, evaluation_frequency=rounded))

    def refuse(self) -> str | None:
        """Contradictory fields, as a sentence."""
        if self.keep_products and not self.activation_checkpointing:
            return (
                "benchmark.keep_products is for benchmark.activation_checkpointing=true; set that, too, or leave "
                "it out."
            )
        if self.activation_checkpointing and self.compile_mode:
            return (
                "benchmark.activation_checkpointing=true was not tried with benchmark.compile=true; leave one of them "
                "out."
            )
        return None
