"""Medical image segmentation: 3D U-Net, trained to a target mean DICE on the evaluation set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.errors import RequestError
from train_bench.quality import Quality
from train_bench.references.parts import loading
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.layout import layout_of
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.references.parts.training import non_finite
from train_bench.references.unet3d import data, quality
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.loss import dice_and_cross_entropy
from train_bench.references.unet3d.model import UNet3D, tensor_names
from train_bench.references.unet3d.recipe import optimizer_of, schedule_of
from train_bench.task import DataFacts


class Task(ServesEvaluationSet[Config, data.Batch]):
    """The benchmark `unet3d` and its smaller scales."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, device = self.config, self.parallel.device
        hyperparameters = config.hyperparameters
        _refuse_shapes(config)
        self._schedule = schedule_of(config)
        window = quality.as_shape(hyperparameters.validation_input_shape)
        self._importance = quality.importance(window).to(device)
        self._strides = quality.strides_of(window, hyperparameters.validation_overlap)
        layout = layout_of(config.model.channels_last, self.parallel, dims=3)
        model: nn.Module = UNet3D(config.model).to(device).to(memory_format=layout)
        self.tensor_names = tensor_names(model)  # 50 for the full model
        return model, optimizer_of(model, hyperparameters)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        windows = (self.config.data.eval_windows, 1, *self.config.hyperparameters.validation_input_shape)
        self.infer(torch.zeros(windows, device=self.parallel.device))

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the volumes, start the loaders."""
        config, parallel = self.config, self.parallel
        hyperparameters = config.hyperparameters
        train, val = data.open_volumes(config)
        train_set = data.TrainingSet(
            volumes=train,
            data=config.data,
            shape=hyperparameters.training_input_shape,
            oversampling=hyperparameters.oversampling,
            classes=config.model.num_classes,
            generators=Generators(self.derived_seed("crops")),
        )
        self._eval_set = data.EvaluationSet(volumes=val)
        mine = data.evaluation_order(val.shapes, parallel.rank, parallel.size)
        fingerprint = self.use_loaders(
            loading.loader(train_set, config.data, parallel.device, self.sampler(data.Positions())),
            loading.loader(self._eval_set, config.data, parallel.device, mine, collate=itemgetter(0)),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        for batch in self.micro_batches(batches):
            images, labels = (part.to(self.parallel.device, non_blocking=True) for part in batch)
            self.backward(dice_and_cross_entropy(self.forward(images), labels))
        self.step(self._schedule(self.optimizer_steps))

    def evaluate(self) -> Quality:
        """`DICE`: the mean over all evaluation cases per class, then over the foreground classes; NaN once the
        loss or a logit is not finite.

        Each rank scores its cases; a row of the table is filled by one rank and zero on all others, so the
        sum over ranks changes no number.
        """
        device, classes = self.parallel.device, self.config.model.num_classes
        scores = torch.zeros(len(self._eval_set.volumes), classes - 1, dtype=torch.float64, device=device)
        diverged = non_finite(self.last_loss)
        for index, *pair in self.evaluation_batches():
            logits, truth = self._segment(*(part.to(device, non_blocking=True) for part in pair))
            scores[index] = quality.dice_per_class(logits.argmax(dim=0), truth[0], classes)
            diverged += non_finite(logits)
        table = self.parallel.sum(torch.cat([scores.flatten(), diverged.view(1)])).cpu()
        dice = table[:-1].view_as(scores).mean(dim=0).mean()
        return Quality(metrics={"DICE": math.nan if table[-1] else float(dice)})

    def _segment(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """(classes, d, h, w) logits and (1, d, h, w) labels of a volume whose border was cut away to fit the
        windows."""
        logits = quality.sliding_window(
            self._infer_windows,
            quality.without_remainder(image, self._strides),
            self._importance,
            strides=self._strides,
            padding=self.config.data.eval_padding,
            windows=self.config.data.eval_windows,
        )
        return logits, quality.without_remainder(label, self._strides)

    def _infer_windows(self, windows: Tensor) -> Tensor:
        """Logits of windows. A compiled network gets equally many in every call."""
        missing = self.config.data.eval_windows - len(windows) if self.config.compile_mode else 0
        logits: Tensor = self.infer(functional.pad(windows, (*[0] * 9, missing)) if missing else windows)
        return logits[: len(windows)]

    def served_samples(self) -> int:
        """Volumes of the evaluation set."""
        return len(self._eval_set.volumes)

    def served_sample(self, index: int) -> tuple[Tensor, Tensor]:
        """The image and the labels of a volume."""
        return self._eval_set[index][1:]

    def answers(self, samples: Sequence[tuple[Tensor, Tensor]]) -> Sequence[bytes]:
        """The class of each voxel, uint8, without the border that does not fit the windows."""
        device = self.parallel.device
        return [
            self._segment(image.to(device), label)[0].argmax(dim=0).byte().cpu().numpy().tobytes()
            for image, label in samples
        ]

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`DICE` of the classes that were answered."""
        classes = self.config.model.num_classes
        scores = []
        for index, answer in enumerate(answers):
            truth = quality.without_remainder(self.served_sample(index)[1], self._strides)[0]
            found = torch.from_numpy(np.frombuffer(answer, dtype=np.uint8).astype(np.int64))
            scores.append(quality.dice_per_class(found.view_as(truth), truth, classes))
        return Quality(metrics={"DICE": float(torch.stack(scores).double().mean(dim=0).mean())})


def _refuse_shapes(config: Config) -> None:
    """The network halves sides; at least two voxels have to remain, or a norm has nothing to compare."""
    hyperparameters = config.hyperparameters
    parts = 2 ** (len(config.model.channels) - 1)
    for name in ("training_input_shape", "validation_input_shape"):
        shape = getattr(hyperparameters, name)
        if len(shape) != 3 or any(side % parts or side < 2 * parts for side in shape):
            raise RequestError(
                f"{name} is {shape}; allowed are three multiples of {parts}, at least {2 * parts}."
            )
    if not 0.0 <= hyperparameters.validation_overlap < 1.0:
        raise RequestError(
            f"validation_overlap is {hyperparameters.validation_overlap}; allowed is 0 to below 1."
        )
