"""Speech recognition: train RNN-T until its word error rate on the evaluation set suffices."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import checkpoint, loading, stream
from train_bench.references._parts.transducer_loss import transducer_loss
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.rnnt import data
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.decoding import greedy
from train_bench.references.rnnt.model import RNNT, joined_length, tensor_names
from train_bench.references.rnnt.quality import word_errors
from train_bench.references.rnnt.recipe import follow, optimizer_of, schedule_of
from train_bench.references.rnnt.tokens import text_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken


class Task:
    """The benchmark `rnnt` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, averaged weights, optimizer, schedule, warm-up. Reads sizes from the configuration only."""
        config = self.config
        asked = config.hyperparameters
        self._seed, self._parallel = seed, parallel
        self._microbatches = asked.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        self._share = asked.global_batch_size // (parallel.size * self._microbatches)
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        model = RNNT(
            config.model,
            features=config.data.frame_stack * config.data.mel_filters,
            scale=asked.model_weights_initialization_scale,
        )
        self._names = tensor_names(model)
        # Copied before they move: on a GPU, moving lays the weights of an LSTM end to end, copying does not.
        self._average = copy.deepcopy(model).to(parallel.device).eval()
        self._model: nn.Module = model.to(parallel.device)
        if config.compile:
            self._model.compile()
        self._optimizer = optimizer_of(self._model, asked)
        self._forward = parallel.wrap(
            self._model, self._optimizer, gradient_accumulation_steps=self._microbatches
        )
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and a decoded batch on synthetic data, undone (rules: initialisation may not touch the data
        set)."""
        config, parallel = self.config, self._parallel
        with without_trace(self._model, self._optimizer, parallel):
            micro = data.synthetic(config, self._share)
            for _ in range(config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if config.warm_up_steps:
                self._decoded(*micro[:2])
        self._average.load_state_dict(self._model.state_dict())
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """The parts of the network, as the rules name them (7)."""
        return self._names

    def open_data(self) -> DataFacts:
        """Find and check the utterances, start the loaders."""
        config, parallel = self.config, self._parallel
        train, val, self._symbols = data.open_recordings(config)
        self._train_set = data.TrainingSet(
            utterances=train,
            data=config.data,
            asked=config.hyperparameters,
            seed=derive(self._seed, "augmentation"),
        )
        eval_set = data.EvaluationSet(
            utterances=val, data=config.data, symbols=self._symbols, seed=derive(self._seed, "dither")
        )
        batches = data.evaluation_order(len(val), config.data.eval_batch_size, parallel.rank, parallel.size)
        self._eval = loading.loader(eval_set, config.data, parallel.device, batches, collate=eval_set.collate)
        self._train = self._from_here()
        self._batches = iter(self._train)
        return replace(data.facts(config), fingerprint=loading.fingerprint_of(self._train, self._eval))

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        asked = self.config.hyperparameters
        order = data.Order(
            lengths=self._train_set.utterances.lengths,
            buckets=asked.data_train_num_buckets,
            seed=self._seed,
            global_batch_size=asked.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        device, collate = self._parallel.device, self._train_set.collate
        return loading.loader(self._train_set, self.config.data, device, order, collate=collate)

    def train_until(self, mark: Mark) -> Progress:
        """Whole batches until `mark.count` samples are consumed. Schedule and averaged weights stand still
        where a step was skipped for an overflow; the data do not."""
        assert self._batches is not None, "open_data comes first"
        batch_size = self.config.hyperparameters.global_batch_size
        self._forward.train()
        for _ in range(self._taken, math.ceil(mark.count / batch_size)):
            self._train_step(self._batches)
        return Progress(samples=self._taken * batch_size)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """One step of the global batch: the loss is the mean over it. What is dropped follows the seed, the
        rank and the step, so that a run that was saved goes on as it would have."""
        parallel = self._parallel
        torch.manual_seed(derive(self._seed, "dropout", parallel.rank, self._taken))
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule(self._step)
        for microbatch in range(1, self._microbatches + 1):
            features, frame_counts, labels, label_counts = (
                part.to(parallel.device, non_blocking=True) for part in next(batches)
            )
            frame_counts = joined_length(frame_counts, self.config.model.time_stack)
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                logits = self._forward(features, labels)
                losses = transducer_loss(
                    logits.float(), labels, frame_counts, label_counts, blank=self.config.model.labels
                )
                loss = losses.mean()
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._taken += 1
        if parallel.step(clip_norm=self.config.hyperparameters.opt_gradient_clip_norm):
            self._step += 1
            follow(self._average, self._model, self.config.hyperparameters.model_eval_ema_factor)

    def evaluate(self) -> Quality:
        """`WER` of the averaged weights over the whole evaluation set; NaN once the loss or an averaged weight
        is not finite."""
        assert self._eval is not None, "open_data comes first"
        broken = not all(
            bool(torch.isfinite(value).all()) for value in (self._last_loss, *self._average.parameters())
        )
        errors = words = 0
        for features, frame_counts, transcripts in self._eval:
            for wanted, found in zip(transcripts, self._decoded(features, frame_counts), strict=True):
                wrong, said = word_errors(wanted, text_of(found, self._symbols))
                errors, words = errors + wrong, words + said
        counts = torch.tensor([errors, words, broken], dtype=torch.int64, device=self._parallel.device)
        errors, words, broken = self._parallel.sum(counts).tolist()
        return Quality(metrics={"WER": math.nan if broken else errors / words})

    def _decoded(self, features: Tensor, frame_counts: Tensor) -> list[list[int]]:
        """The labels that the averaged weights hear in each utterance."""
        device = self._parallel.device
        counts = joined_length(frame_counts.to(device, non_blocking=True), self.config.model.time_stack)
        with self._parallel.inference():
            return greedy(
                self._average,
                features.to(device, non_blocking=True),
                counts,
                symbols_per_frame=self.config.eval_symbols,
                most_symbols=self.config.hyperparameters.eval_max_prediction_symbols,
            )

    def samples_taken(self) -> SamplesTaken:
        """Which samples this rank has trained and evaluated on."""
        assert self._train is not None and self._eval is not None, "open_data comes first"
        return loading.samples_taken(self._train, self._eval)

    def save(self, folder: Path) -> None:
        """Called by every rank; rank 0 writes, in one step."""
        counters = {"seed": self._seed, "step": self._step, "taken": self._taken}
        checkpoint.save(folder, self._parallel, self._both(), self._optimizer, counters)

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Order, augmentation and dropout
        follow the seed of the run that was saved."""
        counters = checkpoint.load(folder, self._parallel, self._both(), self._optimizer)
        self._seed, self._step, self._taken = (counters[name] for name in ("seed", "step", "taken"))
        if self._batches is not None:
            self.open_data()

    def _both(self) -> nn.Module:
        """The weights and their average, as one module to save."""
        return nn.ModuleDict({"model": self._model, "average": self._average})

    def close(self) -> None:
        """Stop the loaders' processes."""
        self._batches = self._train = self._eval = None
