"""Image classification: ResNet, trained to a target top-1 accuracy on the evaluation set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.quality import Quality
from train_bench.references.parts import loading, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.layout import layout_of
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.references.parts.training import non_finite
from train_bench.references.resnet import data, examples
from train_bench.references.resnet.config import Config
from train_bench.references.resnet.model import ResNet, tensor_names
from train_bench.references.resnet.recipe import optimizer_of, schedule_of
from train_bench.task import DataFacts


class Task(ServesEvaluationSet[Config, examples.Batch]):
    """The benchmark `resnet` and its smaller scales."""

    EVALUATES_COPIES = True

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, parallel = self.config, self.parallel
        self._schedule = schedule_of(config)
        self._layout = layout_of(config.model.channels_last, parallel)
        self._means = torch.tensor(config.data.means, device=parallel.device).view(1, 3, 1, 1)
        network: nn.Module = ResNet(config.model).to(parallel.device).to(memory_format=self._layout)
        self.tensor_names = tensor_names(network)  # 161 for ResNet-50
        model = parallel.batch_norm(network, ranks=config.batch_norm_ranks(parallel.size))
        return model, optimizer_of(model, config.hyperparameters)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self._count(examples.synthetic(self.config, self.config.data.eval_batch_size))

    def synthetic(self, samples: int) -> examples.Batch:
        """A synthetic micro-batch; reads no data."""
        return examples.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the images, start the loaders."""
        data_config, parallel = self.config.data, self.parallel
        train, val = data.open_images(self.config)
        train_set = examples.TrainingSet(
            images=train, data=data_config, generators=Generators(self.derived_seed("augmentation"))
        )
        self._eval_set = eval_set = examples.EvaluationSet(images=val, data=data_config)
        order = stream.Shuffled(samples=len(train.labels), seed=self.seed)
        mine = stream.evaluation_order(
            len(val.labels), data_config.eval_batch_size, parallel.rank, parallel.size
        )
        large = data_config.image_size >= loading.LARGE_IMAGE
        fingerprint = self.use_loaders(
            loading.loader(train_set, data_config, parallel.device, self.sampler(order), in_parts=large),
            loading.loader(
                eval_set,
                data_config,
                parallel.device,
                mine,
                padding_from=len(val.labels),
                in_parts=large,
            ),
        )
        return DataFacts(
            train_samples=len(train.labels), eval_samples=len(val.labels), fingerprint=fingerprint
        )

    def train_step(self, batches: Iterator[examples.Batch]) -> None:
        """The loss is the mean over the global batch (reference: sum / GBS)."""
        for batch in self.micro_batches(batches):
            images, labels = self.on_device(batch)
            logits = self.forward(images)
            smoothing = self.config.label_smoothing
            self.backward(functional.cross_entropy(logits.float(), labels, label_smoothing=smoothing))
        self.step(self._schedule(self.optimizer_steps))

    def on_device(self, batch: examples.Batch) -> examples.Batch:
        """The batch on this rank's device with the means subtracted."""
        images, labels = (part.to(self.parallel.device, non_blocking=True) for part in batch)
        return (images - self._means).contiguous(memory_format=self._layout), labels

    def evaluate(self) -> Quality:
        """`top1` over the whole evaluation set by running batch-norm statistics; NaN once the loss or
        a prediction is not finite."""
        counts = torch.zeros(3, dtype=torch.int64, device=self.parallel.device)
        counts[2] = non_finite(self.last_loss)
        correct, seen, broken = self.reduce_over_eval(self._count, counts).tolist()
        return Quality(metrics={"top1": math.nan if broken else correct / seen})

    def _count(self, batch: examples.Batch) -> Tensor:
        """int64 (3,): right predictions, examples that are not padding, predictions not finite."""
        images, labels = self.on_device(batch)
        logits = self.infer(images)
        right = logits.argmax(dim=1) == labels
        broken = ~torch.isfinite(logits).all(dim=1)
        return torch.stack([right.sum(), (labels != examples.PADDING_LABEL).sum(), broken.sum()])

    def served_samples(self) -> int:
        """Images of the evaluation set."""
        return len(self._eval_set.images.labels)

    def served_sample(self, index: int) -> Tensor:
        """float32 (3, image_size, image_size) from 0 to 255."""
        return self._eval_set[index][0]

    def answers(self, samples: Sequence[Tensor]) -> Sequence[bytes]:
        """The class of each image, int32; -1 where a logit is NaN or infinite."""
        images, _ = self.on_device((torch.stack(list(samples)), torch.empty(0)))
        logits = self.infer(images)
        classes = logits.argmax(dim=1).where(torch.isfinite(logits).all(dim=1), -1)
        return [answer.tobytes() for answer in classes.cpu().numpy().astype("<i4")]

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`top1` of the classes that were answered."""
        right = np.frombuffer(b"".join(answers), dtype="<i4") == self._eval_set.images.labels
        return Quality(metrics={"top1": float(right.mean())})
