"""Configuration of the image classification benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.config_mixins import BatchNormGroups


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "image classification"); None is not logged.

    A run has either the `lars_*` keys or the `sgd_*` keys, as `opt_name` says, never both.
    Rates are per step of the global batch; `*_decay_steps` counts steps after the warm-up;
    `*_warmup_epochs` counts epochs; `model_bn_span` counts samples per batch-norm statistic (None: as
    many as one rank has in a micro-batch; `Config.for_ranks` fills it in).
    """

    opt_name: str
    lars_opt_base_learning_rate: float | None = None
    lars_opt_end_learning_rate: float | None = None
    lars_opt_learning_rate_decay_poly_power: float | None = None
    lars_opt_learning_rate_decay_steps: int | None = None
    lars_epsilon: float | None = None
    lars_opt_learning_rate_warmup_epochs: int | None = None
    lars_opt_momentum: float | None = None
    lars_opt_weight_decay: float | None = None
    sgd_opt_base_learning_rate: float | None = None
    sgd_opt_end_learning_rate: float | None = None
    sgd_opt_learning_rate_decay_poly_power: float | None = None
    sgd_opt_learning_rate_decay_steps: int | None = None
    sgd_opt_weight_decay: float | None = None
    sgd_opt_momentum: float | None = None
    opt_learning_rate_warmup_epochs: int | None = None
    model_bn_span: int | None = None


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network. ResNet-50: stem 7x7/2 of 64 channels with pooling, widths 64 to 512.

    stem_width, stem_kernel, stem_stride   the first convolution: channels, pixels, pixels
    stem_pool                   3x3/2 max pooling after it
    widths, blocks, strides     per stage: inner channels, bottleneck blocks, stride of its first block
    expansion                   output channels of a block per inner channel
    num_classes                 1000, or 1001 with an unused one (closed division)
    same_padding                pad 3x3 layers of stride 2 as TensorFlow's "same" does, where the size is even at the
                                bottom and right alone; false: on all sides
    truncated_init              draw convolution weights from a normal truncated at two deviations
    channels_last               memory layout; None: the faster one; changes no number beyond rounding
    """

    stem_width: int
    stem_kernel: int
    stem_stride: int
    stem_pool: bool
    widths: list[int]
    blocks: list[int]
    strides: list[int]
    expansion: int = 4
    num_classes: int
    same_padding: bool = False
    truncated_init: bool = True
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Data:
    """Source of the images and processing on the clock.

    origin          "imagenet", "cifar10" or "digits": what `prepare` knows how to read
    layout          "shards" (packed by `prepare`) or "folder" (train/<class>/*, val/<class>/*)
    shard_samples   images per shard file
    sha256          digest that the prepared images and labels must have; None: not checked
    verify          hash the shards whenever they are opened; else only their sizes are compared
    image_size      pixels of the square that the model sees
    eval_resize     pixels of the shorter side before the centre crop of an evaluation
    half_pixel_centers   resize with pixel centres at half integers; false: with the top left corners aligned, as the
                    reference does
    crop_area       smallest and largest share of the image that a training crop covers
    crop_aspect     smallest and largest width / height of a training crop
    crop_covers     smallest share of at least one object box that a training crop covers
    crop_attempts   draws before the whole image is taken
    flip            probability of a horizontal flip
    means           subtracted from red, green, blue (0 to 255); nothing is divided by a deviation
    eval_batch_size images per rank in an evaluation step
    workers         loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch        batches that each worker holds ready
    permute_labels  give every training image the label of another one: nothing can be learnt
    """

    origin: str
    layout: str = "shards"
    shard_samples: int = 1252
    sha256: str | None = None
    verify: bool = False
    image_size: int
    eval_resize: int
    half_pixel_centers: bool = True
    crop_area: list[float] = field(default_factory=lambda: [0.05, 1.0])
    crop_aspect: list[float] = field(default_factory=lambda: [0.75, 1.33])
    crop_covers: float = 0.1
    crop_attempts: int = 100
    flip: float = 0.5
    means: list[float] = field(default_factory=lambda: [123.68, 116.78, 103.94])
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(BatchNormGroups, task.BenchmarkConfig):
    """The image classification benchmark at any scale. `label_smoothing` is 0 or 0.1 in the closed
    division; `warm_up_steps` are taken on synthetic batches before the clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    label_smoothing: float = 0.1
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("digits",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.workers", "data.prefetch", "data.verify", "data.layout", "data.shard_samples"),
        *("data.eval_batch_size", "model.channels_last", "model.truncated_init", "warm_up_steps"),
    )

    FIXED_SHAPES: ClassVar[bool] = True

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "PIL", "sklearn")
