"""Configuration of the object detection benchmark with a feature pyramid.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.config_mixins import BackboneWeights


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "object detection (RetinaNet)").

    `opt_base_learning_rate` is the rate after the warm-up, which takes `opt_learning_rate_warmup_epochs` and begins
    at the share `opt_learning_rate_warmup_factor` of it.
    """

    opt_name: str = "adam"
    opt_base_learning_rate: float
    opt_learning_rate_warmup_epochs: float = 1
    opt_learning_rate_warmup_factor: float = 0.001
    opt_weight_decay: float = 0.0


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network; the defaults are those of the full benchmark.

    image_size                pixels of the square that the network sees
    stem_width, stem_kernel   the first convolution (stride 2): channels, pixels
    stem_pool                 3x3/2 max pooling after it
    widths, blocks            per stage: channels, bottleneck blocks, which give four times as many; stages 2 to 4
                              halve the size
    groups, width_per_group   of the 3x3 convolutions, for 64 channels (ResNeXt's cardinality and width)
    norm                      "frozen": fixed affine of the start weights; "batch": trained batch norm
    frozen_stages             stages that are not trained, the stem with them (0: the stem is trained, too)
    fpn_channels              channels of the pyramid and of the heads
    head_deviation            of the start weights of the heads' convolutions
    num_classes               without a background
    anchor_size               pixels of the smallest anchor of the finest level; doubles from level to level
    start_weights             file of backbone weights, in `data_dir` unless absolute; None: random
    channels_last             memory layout; None: the faster one; changes no number beyond rounding
    """

    image_size: int = 800
    stem_width: int = 64
    stem_kernel: int = 7
    stem_pool: bool = True
    widths: list[int] = field(default_factory=lambda: [64, 128, 256, 512])
    blocks: list[int] = field(default_factory=lambda: [3, 4, 6, 3])
    groups: int = 32
    width_per_group: int = 4
    norm: str = "frozen"
    frozen_stages: int = 1
    fpn_channels: int = 256
    head_deviation: float = 0.01
    num_classes: int = 264
    anchor_size: int = 32
    start_weights: str | None = None
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Data:
    """Source of the images and processing on the clock.

    origin          "openimages" or "digits": what `prepare` knows how to read
    sha256          digest that all pixels and annotations must have; None: not checked
    verify          decode and hash everything whenever the data are opened
    flip            probability of a horizontal flip
    means, deviations   of red, green, blue, as shares of the full intensity
    eval_batch_size images per rank in an evaluation step
    workers         loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch        batches that each worker holds ready
    permute_labels  give every training image the boxes of another one: nothing can be learnt
    """

    origin: str = "openimages"
    sha256: str | None = None
    verify: bool = False
    flip: float = 0.5
    means: list[float] = field(default_factory=lambda: [0.485, 0.456, 0.406])
    deviations: list[float] = field(default_factory=lambda: [0.229, 0.224, 0.225])
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(BackboneWeights, task.BenchmarkConfig):
    """The object detection benchmark at any scale. `warm_up_steps` are taken on synthetic batches before the clock and
    then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("digits",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("model.channels_last", "warm_up_steps", "ruleset"),
    )

    FIXED_SHAPES: ClassVar[bool] = True

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "torchvision", "pycocotools", "PIL", "sklearn")
