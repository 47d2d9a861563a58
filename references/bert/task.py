"""Language model pretraining: train BERT until it fills in enough of the masked words of the evaluation set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, loading, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.bert import data
from train_bench.references.bert.config import Config
from train_bench.references.bert.loss import pretraining_loss
from train_bench.references.bert.model import Bert, Logits, tensor_names
from train_bench.references.bert.quality import count_words
from train_bench.references.bert.recipe import optimizer_of, schedule_of
from train_bench.references.bert.weights import load_start_weights
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `bert` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, start weights, optimizer, schedule, warm-up. Reads sizes from the configuration only."""
        config = self.config
        asked = config.hyperparameters
        self._seed, self._parallel = seed, parallel
        self._microbatches = asked.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        _refuse_shapes(config)
        self._share = config.local_batch_size(parallel.size)
        self._schedule = schedule_of(asked)
        torch.manual_seed(derive(seed, "weights"))
        model = Bert(config.model)
        if config.start_weights is not None:
            load_start_weights(model, Path(config.start_weights))
        self._model: nn.Module = model.to(parallel.device)
        self._names = tensor_names(self._model)
        if config.compile:
            self._model.compile()
        self._optimizer = optimizer_of(self._model, asked)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and an evaluation batch on synthetic data, undone (rules: initialisation may not touch the
        data set)."""
        config, parallel = self.config, self._parallel
        with without_trace(self._model, self._optimizer, parallel):
            micro = data.synthetic(config, self._share)
            for _ in range(config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if config.warm_up_steps:
                self._forward.eval()
                self._count(data.synthetic(config, config.data.eval_batch_size))
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All parameters, as the rules name them (398 for BERT-Large)."""
        return self._names

    def open_data(self) -> DataFacts:
        """Find and check the examples, start the loaders."""
        config, parallel = self.config, self._parallel
        train, val = data.open_examples(config)
        packed = config.data.pack
        self._examples = data.BatchSet(examples=train, permuted=config.data.permute_labels, pack=packed)
        mine = stream.evaluation_order(len(val), config.data.eval_batch_size, parallel.rank, parallel.size)
        eval_set = data.BatchSet(examples=val, pack=packed)
        self._eval = loading.loader(
            eval_set, config.data, parallel.device, mine, collate=None, padding_from=len(val)
        )
        self._train = self._from_here()
        self._batches = iter(self._train)
        return replace(data.facts(config), fingerprint=loading.fingerprint_of(self._train, self._eval))

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        order = data.Order(
            samples=len(self._examples.examples),
            seed=self._seed,
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        device = self._parallel.device
        return loading.loader(self._examples, self.config.data, device, order, collate=None)

    def train_until(self, mark: Mark) -> Progress:
        """Whole batches until `mark.count` samples are consumed. The schedule stands still where a step
        was skipped for an overflow; the data do not. Dropout follows the seed, the rank and the step that the
        call begins with, so that a run continues exactly from a checkpoint between calls."""
        assert self._batches is not None, "open_data comes first"
        torch.manual_seed(derive(self._seed, "dropout", self._parallel.rank, self._taken))
        batch_size = self.config.hyperparameters.global_batch_size
        self._forward.train()
        for _ in range(self._taken, math.ceil(mark.count / batch_size)):
            self._train_step(self._batches)
        return Progress(samples=self._taken * batch_size)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """One step of the global batch."""
        parallel = self._parallel
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule(self._step)
        for microbatch in range(1, self._microbatches + 1):
            batch = self._on_device(next(batches))
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                logits = self._logits(batch)
                loss = pretraining_loss(logits, batch.words, batch.weights, batch.random_next)
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step(clip_norm=self.config.clip_norm))
        self._taken += 1

    def _on_device(self, batch: data.Batch) -> data.Batch:
        device = self._parallel.device
        there = {
            name: part.to(device, non_blocking=True)
            for name, part in batch._asdict().items()
            if part is not None
        }
        return data.Batch(**there)

    def _logits(self, batch: data.Batch) -> Logits:
        logits: Logits = self._forward(
            batch.tokens, batch.segments, batch.lengths, batch.positions, batch.packing
        )
        return logits

    def evaluate(self) -> Quality:
        """`MLM_accuracy`: the share of all masked words of the evaluation set that are most likely to the
        model; NaN once the loss or a logit is not finite."""
        assert self._eval is not None, "open_data comes first"
        self._forward.eval()
        counts = torch.zeros(3, dtype=torch.int64, device=self._parallel.device)
        counts[2] = ~torch.isfinite(self._last_loss)
        for batch in self._eval:
            counts += self._count(batch)
        self._forward.train()
        right, masked, broken = self._parallel.sum(counts).tolist()
        return Quality(metrics={"MLM_accuracy": math.nan if broken else right / masked})

    def _count(self, batch: data.Batch) -> Tensor:
        batch = self._on_device(batch)
        with self._parallel.inference():
            logits = self._logits(batch)
        return count_words(logits.words, batch.words, batch.weights)

    def samples_taken(self) -> SamplesTaken:
        """Which samples this rank has trained and evaluated on."""
        assert self._train is not None and self._eval is not None, "open_data comes first"
        return loading.samples_taken(self._train, self._eval)

    def save(self, folder: Path) -> None:
        """Called by every rank; rank 0 writes, in one step."""
        counters = {"seed": self._seed, "step": self._step, "taken": self._taken}
        checkpoint.save(folder, self._parallel, self._model, self._optimizer, counters)

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. The order follows the
        seed of the run that was saved."""
        counters = checkpoint.load(folder, self._parallel, self._model, self._optimizer)
        self._seed, self._step, self._taken = (counters[name] for name in ("seed", "step", "taken"))
        if self._batches is not None:
            self.open_data()

    def close(self) -> None:
        """Stop the loaders' processes."""
        self._batches = self._train = self._eval = None


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
