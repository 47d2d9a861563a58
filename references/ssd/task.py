"""Light-weight object detection: SSD, trained to a target mean average precision."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from pycocotools.coco import COCO
from torch import Tensor, nn

from train_bench.quality import Quality
from train_bench.references.parts import backbone_weights, box_quality, coco_ap, loading, prepared, stream
from train_bench.references.parts.training import TrainingTask, non_finite
from train_bench.references.ssd import data
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.detections import detect
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD, UNUSED, tensor_names
from train_bench.references.ssd.priors import priors
from train_bench.references.ssd.recipe import optimizer_of, schedule_of
from train_bench.task import DataFacts


class Task(TrainingTask[Config, data.Batch]):
    """The benchmark `ssd` and its smaller scales."""

    def _build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, parallel = self.config, self._parallel
        self._schedule = schedule_of(config)
        self._prior = priors(config.model)
        self._prior_there = self._prior.to(parallel.device)
        self._means, self._deviations = (
            255.0 * torch.tensor(values, device=parallel.device).view(1, 3, 1, 1)
            for values in (config.data.means, config.data.deviations)
        )
        self._layout = torch.channels_last if config.model.channels_last else torch.contiguous_format
        network = SSD(config.model)
        self._tensor_names = tensor_names(network)  # 119 for the full model
        weights = config.start_weights_file()
        if weights is not None:
            backbone_weights.load(network.backbone, weights, unused=UNUSED)
        model = parallel.batch_norm(
            network.to(parallel.device).to(memory_format=self._layout),
            ranks=config.batch_norm_ranks(parallel.size),
        )
        return model, optimizer_of(model, config.hyperparameters)

    def _warm_up(self) -> None:
        self._run_warmup(self.synthetic(self._local_batch_size))
        images = data.synthetic(self.config, self.config.data.eval_batch_size)[0]
        offsets, logits = self._infer(self._normalized(images))
        detect(offsets[0], logits[0], self._prior_there)

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the images, start the loaders; rank 0 reads the truth of the evaluation."""
        config, parallel = self.config, self._parallel
        train, self._val = data.open_splits(config, prepared.folder_of(config))
        self._truth: COCO | None = coco_ap.index(self._val.path) if parallel.rank == 0 else None
        train_set = data.TrainingSet(
            split=train,
            data=config.data,
            prior=self._prior,
            side=config.model.image_size,
            max_samples=config.hyperparameters.max_samples,
            seed=self._derived("augmentation"),
        )
        eval_set = data.EvaluationSet(split=self._val, side=config.model.image_size)
        order = stream.Shuffled(samples=len(train.images), seed=self._seed)
        seen, every = len(self._val.images), len(self._val.annotations.image_ids)
        mine = stream.evaluation_order(seen, config.data.eval_batch_size, parallel.rank, parallel.size)
        fingerprint = self._use_loaders(
            loading.loader(
                train_set, config.data, parallel.device, self._sampler(order), collate=train_set.collate
            ),
            loading.loader(eval_set, config.data, parallel.device, mine, padding_from=seen),
            eval_left_out=every - seen,
        )
        return DataFacts(train_samples=len(train.images), eval_samples=every, fingerprint=fingerprint)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        for images, *truth in self._micro_batches(batches):
            targets, classes = (part.to(self._parallel.device, non_blocking=True) for part in truth)
            offsets, logits = self._forward(self._normalized(images))
            self._backward(multibox_loss(offsets.float(), logits.float(), targets, classes))
        self._optimizer_step(self._schedule(self._optimizer_steps))

    def _normalized(self, images: Tensor) -> Tensor:
        """uint8 images on this rank's device as float32, without mean and of deviation 1."""
        there = images.to(self._parallel.device, non_blocking=True).float()
        return ((there - self._means) / self._deviations).contiguous(memory_format=self._layout)

    def evaluate(self) -> Quality:
        """`mAP` over the whole evaluation set by running batch-norm statistics; NaN once the loss or an
        answer of the network is not finite. Rank 0's answer counts."""
        diverged = non_finite(self._last_loss)
        detections = []
        for images, indices in self._evaluation():
            offsets, logits = self._infer(self._normalized(images))
            diverged += non_finite(offsets, logits)
            for index, places, kinds in zip(indices.tolist(), offsets, logits, strict=True):
                if index < len(self._val.images):
                    boxes = detect(places, kinds, self._prior_there)
                    number = int(self._val.images[index])
                    detections.append(box_quality.rows(boxes, self._val.annotations, number))
        if self._parallel.sum(diverged).item():
            return Quality(metrics={"mAP": math.nan})
        precision = box_quality.average_precision(self._truth, detections, self._parallel)
        return Quality(metrics={"mAP": precision})
