"""Configuration of the 3D medical image segmentation benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from train_bench import task


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "image segmentation (medical)").

    Rates are per step of the global batch, constant within an epoch; `*_epochs` count epochs of
    `samples_per_epoch` samples. Shapes are depth, height, width in voxels.

    oversampling            share of the training crops that are placed around foreground
    validation_overlap      share of a window that the next one covers again, per axis
    samples_per_epoch       `train_samples` padded to whole batches; `Config.for_ranks` fills it in
    """

    opt_name: str
    opt_base_learning_rate: float
    opt_initial_learning_rate: float
    opt_learning_rate_warmup_epochs: int
    opt_learning_rate_decay_boundary_epochs: list[int] = field(default_factory=list)
    opt_learning_rate_decay_factor: float = 1.0
    opt_momentum: float
    opt_weight_decay: float = 0.0
    oversampling: float = 0.4
    training_input_shape: list[int]
    validation_input_shape: list[int]
    validation_overlap: float = 0.5
    samples_per_epoch: int | None = None


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network.

    channels        per resolution, the finest first; each one after the first halves the volume's sides
    num_classes     background included
    channels_last   memory layout; None: the faster one; changes no number beyond rounding
    """

    channels: list[int]
    num_classes: int = 3
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Data:
    """Source and processing of the volumes.

    origin            "kits19", "decathlon" or "organs": what `prepare` knows how to read
    evaluation_cases  numbers of the cases that evaluate; all others train (decathlon: `dataset.json` says)
    target_spacing    millimetres per voxel to which volumes are resampled
    clip              lowest and highest intensity before normalisation; None: nothing is clipped
    mean, deviation   subtracted from the intensity, then its divisor; None: those of each volume
    md5               file of lines as md5sum prints them, next to this one unless absolute: the digests that
                      prepared files must have; None: not checked
    sha256            digest that all prepared volumes together must have; None: not checked
    verify            hash the volumes whenever they are opened; else only their sizes are compared
    flip              probability of a flip, per axis
    brightness        probability that a crop is multiplied by 1 + f, f uniform in `brightness_range`
    noise             probability of Gaussian noise, its deviation uniform in `noise_range`
    eval_padding      intensity around an evaluation volume
    eval_windows      windows per forward pass of an evaluation
    workers           loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch          batches that each worker holds ready
    permute_labels    give every training volume the labels of another one: nothing can be learnt
    """

    origin: str
    evaluation_cases: list[int] = field(default_factory=list)
    target_spacing: list[float] = field(default_factory=lambda: [1.6, 1.2, 1.2])
    clip: list[float] | None = None
    mean: float | None = None
    deviation: float | None = None
    md5: str | None = None
    sha256: str | None = None
    verify: bool = False
    flip: float = 1 / 3
    brightness: float = 0.1
    brightness_range: list[float] = field(default_factory=lambda: [0.7, 1.3])
    noise: float = 0.1
    noise_range: list[float] = field(default_factory=lambda: [0.0, 0.1])
    eval_padding: float = -2.2
    eval_windows: int = 1
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The medical image segmentation benchmark at any scale. `warm_up_steps` are taken on synthetic batches
    before the clock and then undone."""

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("organs",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *(option for option in task.BenchmarkConfig.TUNABLE if option != "hyperparameters"),
        *("hyperparameters.global_batch_size", "hyperparameters.gradient_accumulation_steps"),
        *("hyperparameters.opt_name", "hyperparameters.opt_momentum", "hyperparameters.opt_weight_decay"),
        *("hyperparameters.opt_base_learning_rate", "hyperparameters.opt_initial_learning_rate"),
        "hyperparameters.opt_learning_rate_warmup_epochs",
        "hyperparameters.opt_learning_rate_decay_boundary_epochs",
        "hyperparameters.opt_learning_rate_decay_factor",
        *("data.verify", "data.eval_windows", "data.workers", "data.prefetch"),
        *("model.channels_last", "warm_up_steps"),
    )

    FIXED_SHAPES: ClassVar[bool] = True

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "nibabel")
    """The rules fix oversampling, the input shapes and the overlap."""

    @property
    def samples_per_epoch(self) -> int | None:
        """The training set padded to whole batches (training rules, evaluation frequency)."""
        batch = self.hyperparameters.global_batch_size
        return None if self.train_samples is None else math.ceil(self.train_samples / batch) * batch

    def for_ranks(self, ranks: int) -> Config:
        """With `samples_per_epoch` as it will be."""
        padded = self.samples_per_epoch
        return replace(self, hyperparameters=replace(self.hyperparameters, samples_per_epoch=padded))
