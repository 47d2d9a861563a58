"""Configuration of the instance segmentation benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from train_bench import task
from train_bench.references.parts.config_mixins import BackboneWeights


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "object detection, heavy weight").

    The rate rises by `opt_learning_rate_warmup_factor` in each of `opt_learning_rate_warmup_steps` and is
    multiplied by `opt_learning_rate_decay_factor` at each of `opt_learning_rate_decay_steps`, all in steps
    of the global batch. `num_image_candidates` proposals are kept over the images of one rank's micro-batch
    in training. `min_image_size` and `max_image_size` are pixels.
    """

    opt_name: str = "sgd_with_momentum"
    opt_base_learning_rate: float
    opt_learning_rate_warmup_steps: int
    opt_learning_rate_warmup_factor: float
    opt_learning_rate_decay_factor: float = 0.1
    opt_learning_rate_decay_steps: list[int]
    num_image_candidates: int
    min_image_size: int
    max_image_size: int


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network; the defaults are those of the full benchmark.

    stem_width, stem_kernel     the first convolution (stride 2): channels, pixels
    stem_pool                   3x3/2 max pooling after it
    widths, blocks              per stage: inner channels, bottleneck blocks; stages 2 to 4 halve the size
    expansion                   output channels of a block per inner channel
    norm                        "frozen": fixed affine of the start weights; "batch": trained batch norm
    frozen_stages               stages that are not trained, the stem with them (0: the stem is trained, too)
    start_weights               file of backbone weights, in `data_dir` unless absolute; None: random
    fpn_channels                channels of the pyramid
    box_features                width of the two dense layers of the box head
    mask_channels               channels of the convolutions of the mask head
    num_classes                 categories and the background
    anchor_sizes                pixels, one per level of the pyramid from the finest (one more than stages)
    canonical_size              RoIs of this side (pixels) are pooled from the third level, as in the FPN paper
    channels_last               memory layout; None: the faster one; changes no number beyond rounding
    """

    stem_width: int = 64
    stem_kernel: int = 7
    stem_pool: bool = True
    widths: list[int] = field(default_factory=lambda: [64, 128, 256, 512])
    blocks: list[int] = field(default_factory=lambda: [3, 4, 6, 3])
    expansion: int = 4
    norm: str = "frozen"
    frozen_stages: int = 1
    start_weights: str | None = None
    fpn_channels: int = 256
    box_features: int = 1024
    mask_channels: int = 256
    num_classes: int = 81
    anchor_sizes: list[int] = field(default_factory=lambda: [32, 64, 128, 256, 512])
    canonical_size: float = 224.0
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Detection:
    """Proposal, sampling and reporting of boxes; the defaults are the reference's.

    train_candidates, eval_candidates  proposals per level before and after suppression
    eval_proposals                     proposals per image of an evaluation
    proposal_nms                       IoU above which a weaker proposal is dropped
    anchors_sampled, rois_sampled      examples of the losses per image
    sampling_ratio                     points per axis that are averaged for a pooled pixel (RoIAlign)
    score_above, nms, detections       what an evaluation reports: smallest score, IoU, number per image
    """

    train_candidates: int = 2000
    eval_candidates: int = 1000
    eval_proposals: int = 1000
    proposal_nms: float = 0.7
    anchors_sampled: int = 256
    rois_sampled: int = 512
    sampling_ratio: int = 2
    score_above: float = 0.05
    nms: float = 0.5
    detections: int = 100


@dataclass(slots=True, kw_only=True)
class Data:
    """Source of the images and processing on the clock.

    origin          "coco", "nuclei" or "digits": what `prepare` knows how to read
    verify          decode every image whenever the data are opened; else when it is first needed
    sha256          digest that pixels and annotations together must have; None: not checked
    flip            probability of a horizontal flip in training
    means           subtracted from blue, green, red (0 to 255); nothing is divided by a deviation
    eval_batch_size images per rank in an evaluation step
    workers         loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch        batches that each worker holds ready
    permute_labels  give every training image the objects of another one: nothing can be learnt
    """

    origin: str = "coco"
    verify: bool = False
    sha256: str | None = None
    flip: float = 0.5
    means: list[float] = field(default_factory=lambda: [102.9801, 115.9465, 122.7717])
    eval_batch_size: int = 1
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(BackboneWeights, task.BenchmarkConfig):
    """The instance segmentation benchmark at any scale. `warmup_method` is "mlperf_linear" or "linear": what
    the rate of biases is while it rises (`recipe.StepDecay`). `warm_up_steps` are taken on synthetic
    batches before the clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    detection: Detection = field(default_factory=Detection)
    data: Data
    warmup_method: str = "mlperf_linear"
    momentum: float = 0.9
    weight_decay: float = 0.0001
    warm_up_steps: int = 1

    GENERATES: ClassVar[tuple[str, ...]] = ("digits",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("model.channels_last", "warm_up_steps", "warmup_method"),
    )

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "torchvision", "pycocotools", "PIL", "sklearn")

    def refuse(self) -> str | None:
        """Refuse compilation, as a sentence."""
        return self.refuse_compilation("the sizes of its images and the numbers of its boxes change")
