"""Configuration of the single-shot detection benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.config_mixins import BackboneWeights, BatchNormGroups


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "object detection (light-weight)").

    `opt_base_learning_rate` is the rate that is reached after the warm-up, scaled to the global batch;
    `opt_learning_rate_warmup_factor` f is an exponent: the first rate is (1 - 2^-f) of the base;
    boundaries count epochs; `max_samples` are the crops tried per drawn option; `model_bn_span` counts
    samples per batch-norm statistic (None: as many as one rank has in a micro-batch; `Config.for_ranks`
    fills it in).
    """

    opt_base_learning_rate: float
    opt_learning_rate_warmup_factor: int = 0
    opt_learning_rate_warmup_steps: int
    opt_learning_rate_decay_boundary_epochs: list[int]
    opt_weight_decay: float
    max_samples: int = 1
    model_bn_span: int | None = None


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network and its prior boxes.

    image_size           pixels of the square that the model sees
    stem_width, stem_kernel, stem_stride, stem_pool   first convolution; 3x3/2 max pooling after it
    widths, blocks, strides   per stage: channels, basic blocks, stride of its first block
    extra                per further feature map: channels of its 1x1 and of its 3x3 convolution, stride
                         and padding of the latter
    num_classes          without the background
    feature_sizes, feature_steps   per map: places per side, pixels from one place to the next
    scales               pixels; one more than there are maps
    aspect_ratios        per map: further shapes, each with its transpose
    start_weights        file of backbone weights, in `data_dir` unless absolute; None: random
    channels_last        memory layout; None: the faster one; changes no number beyond rounding
    """

    image_size: int
    stem_width: int
    stem_kernel: int
    stem_stride: int
    stem_pool: bool
    widths: list[int]
    blocks: list[int]
    strides: list[int]
    extra: list[list[int]]
    num_classes: int
    feature_sizes: list[int]
    feature_steps: list[int]
    scales: list[int]
    aspect_ratios: list[list[int]]
    start_weights: str | None = None
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Data:
    """Source of the images and processing on the clock.

    origin          "coco", "digits" or "bccd": what `prepare` knows how to read
    sha256          digest that all pixels and annotations must have; None: not checked
    verify          decode and hash everything whenever the data are opened
    flip            probability of a horizontal flip
    brightness, contrast, saturation   a factor is drawn from 1 - x to 1 + x; 0: left as it is
    hue             a shift is drawn from -x to x, as a share of the circle of hues
    means, deviations   of red, green, blue, as shares of the full intensity
    eval_batch_size images per rank in an evaluation step
    workers         loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch        batches that each worker holds ready
    permute_labels  give every training image the boxes of another one: nothing can be learnt
    """

    origin: str
    sha256: str | None = None
    verify: bool = False
    flip: float = 0.5
    brightness: float = 0.125
    contrast: float = 0.5
    saturation: float = 0.5
    hue: float = 0.05
    means: list[float] = field(default_factory=lambda: [0.485, 0.456, 0.406])
    deviations: list[float] = field(default_factory=lambda: [0.229, 0.224, 0.225])
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(BackboneWeights, BatchNormGroups, task.BenchmarkConfig):
    """The single-shot detection benchmark at any scale. `warm_up_steps` are taken on synthetic batches
    before the clock and then undone.

    hold_warmup_rate   the last rate of the warm-up is held until the first boundary, as by the reference; false: the
                       base rate follows the warm-up
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    hold_warmup_rate: bool = False
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("digits",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("model.channels_last", "warm_up_steps"),
    )

    FIXED_SHAPES: ClassVar[bool] = True

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "torchvision", "pycocotools", "PIL", "sklearn")
