"""Language model pretraining: BERT, trained to a target masked-language-model accuracy on the evaluation set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from train_bench.errors import RequestError
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references.bert import data
from train_bench.references.bert.config import Config
from train_bench.references.bert.loss import pretraining_loss
from train_bench.references.bert.model import Bert, Logits, tensor_names
from train_bench.references.bert.quality import count_words
from train_bench.references.bert.recipe import optimizer_of, schedule_of
from train_bench.references.bert.weights import load_start_weights
from train_bench.references.parts import loading, resident, stream
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.references.parts.training import non_finite
from train_bench.task import DataFacts

NO_WORD = np.array([65535], dtype="<u2")


class Task(ServesEvaluationSet[Config, data.Batch]):
    """The benchmark `bert` and its smaller scales."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config = self.config
        _refuse_shapes(config)
        self._schedule = schedule_of(config.hyperparameters)
        model = Bert(config.model)
        self.tensor_names = tensor_names(model)  # 398 for BERT-Large
        if config.start_weights is not None:
            load_start_weights(model, Path(config.start_weights))
        model.to(self.parallel.device)
        return model, optimizer_of(model, config.hyperparameters)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self._count(data.synthetic(self.config, self.config.data.eval_batch_size))

    def synthetic(self, samples: int, *, share: float = 1.0) -> data.Batch:
        """A synthetic micro-batch of the longest samples or of a share of their length; reads no data."""
        return data.synthetic(self.config, samples, share=share)

    def dry_notes(self) -> Sequence[str]:
        """Limitations of a dry run's numbers."""
        length = self.config.data.sequence_length
        return (
            f"Examples are padded to {length} tokens; the mean length of Wikipedia's is not known here.",
            *(
                ("Packed rows hold several short examples; here every row is one of full length.",)
                * self.config.data.pack
            ),
        )

    def open_data(self) -> DataFacts:
        """Find and check the examples, start the loaders."""
        config, parallel = self.config, self.parallel
        train, val = data.open_examples(config)
        packed, device = config.data.pack, parallel.device
        train_set = data.BatchSet(examples=train, permuted=config.data.permute_labels, pack=packed)
        self._val = val
        eval_set = data.BatchSet(examples=val, pack=packed)
        order = data.Shuffle(samples=len(train), seed=self.seed)
        mine = stream.evaluation_order(len(val), config.data.eval_batch_size, parallel.rank, parallel.size)
        fingerprint = self.use_loaders(
            loading.loader(
                train_set,
                config.data,
                device,
                self.sampler(order),
                collate=None,
                rows=0 if packed else len(train),
            ),
            loading.loader(
                eval_set,
                config.data,
                device,
                mine,
                collate=None,
                padding_from=len(val),
                rows=0 if packed else len(val) + 1,
            ),
        )
        # At full scale the training set has no stated size: there the log reports the samples consumed.
        return DataFacts(train_samples=config.train_samples, eval_samples=len(val), fingerprint=fingerprint)

    def device_sets(self) -> int:
        """Bytes of the data sets that a GPU holds; rows that are packed are made by loader processes."""
        config = self.config
        sets = () if config.data.pack else ((config.train_samples, 0), (config.eval_samples, 1))
        return resident.size_of(self.synthetic(1), config.data.workers, *sets)

    def train_until(self, mark: Mark) -> Progress:
        """Dropout follows the seed, the rank and the iteration that the call begins with, so that a run continues
        exactly from a checkpoint between calls."""
        torch.manual_seed(self.derived_seed("dropout", self.parallel.rank, self.iterations))
        return super().train_until(mark)

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """Masked words and the next sentence: each loss is a mean over its predictions in the micro-batch."""
        for micro_batch in self.micro_batches(batches):
            batch = self.on_device(micro_batch)
            logits = self._logits(batch)
            self.backward(pretraining_loss(logits, batch.words, batch.weights, batch.random_next))
        self.step(self._schedule(self.optimizer_steps), clip_norm=self.config.clip_norm)

    def on_device(self, batch: data.Batch) -> data.Batch:
        device = self.parallel.device
        there = {
            name: part.to(device, non_blocking=True)
            for name, part in batch._asdict().items()
            if part is not None
        }
        return data.Batch(**there)

    def _logits(self, batch: data.Batch) -> Logits:
        logits: Logits = self.forward(
            batch.tokens, batch.segments, batch.lengths, batch.positions, batch.packing
        )
        return logits

    def evaluate(self) -> Quality:
        """`MLM_accuracy`: the share of all masked words of the evaluation set that the model ranks first; NaN once the
        loss or a logit is NaN or infinite."""
        counts = torch.zeros(3, dtype=torch.int64, device=self.parallel.device)
        counts[2] = non_finite(self.last_loss)
        right, masked, broken = self.reduce_over_eval(self._count, counts).tolist()
        return Quality(metrics={"MLM_accuracy": math.nan if broken else right / masked})

    def _count(self, batch: data.Batch) -> Tensor:
        batch = self.on_device(batch)
        with self.parallel.inference():
            logits = self._logits(batch)
        return count_words(logits.words, batch.words, batch.weights)

    def served_samples(self) -> int:
        """Examples of the evaluation set."""
        return len(self._val)

    def served_sample(self, index: int) -> np.void:
        """The packed row of an example."""
        return self._val[index]

    def answers(self, samples: Sequence[np.void]) -> Sequence[bytes]:
        """The words at the masked positions of each example, uint16; without a word where a logit is not finite."""
        rows = np.array(samples, dtype=self._val.rows)
        batch = self.on_device(data.as_batch(rows, pack=self.config.data.pack))
        with self.parallel.inference():
            logits = self._logits(batch).words
        finite = torch.isfinite(logits).flatten(1).all(dim=1).tolist()
        words = logits.argmax(dim=2).cpu().numpy().astype("<u2")
        return [
            found[: row["masked"]].tobytes() if whole else NO_WORD.tobytes()
            for found, row, whole in zip(words, rows, finite, strict=True)
        ]

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`MLM_accuracy` of the words that were answered."""
        right = masked = 0
        for index, answer in enumerate(answers):
            row = self._val[index]
            count = int(row["masked"])
            found = np.frombuffer(answer, dtype="<u2")
            right += int((found == row["words"][:count]).sum()) if len(found) == count else 0
            masked += count
        return Quality(metrics={"MLM_accuracy": right / masked})


def _refuse_shapes(config: Config) -> None:
    shape, prepared = config.model, config.data
    if shape.width % shape.heads:
        raise RequestError(f"model.width {shape.width} cannot be divided among {shape.heads} heads.")
    if not 4 <= prepared.sequence_length <= min(shape.positions, 65535):
        raise RequestError(
            f"data.sequence_length is {prepared.sequence_length}; allowed are 4 to model.positions="
            f"{shape.positions}."
        )
    if not 1 <= prepared.predictions < prepared.sequence_length:
        raise RequestError(
            f"data.predictions is {prepared.predictions}; allowed are 1 to {prepared.sequence_length - 1}."
        )
    if shape.vocabulary > 65536:
        raise RequestError(
            f"model.vocabulary is {shape.vocabulary}; packed examples hold at most 65536 words."
        )
