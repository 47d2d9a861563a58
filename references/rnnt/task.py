"""Speech recognition: RNN-T, trained to a target word error rate on the evaluation set."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from train_bench.parallel import Parallel
from train_bench.quality import Quality
from train_bench.references.parts import checkpoint, loading, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.references.parts.training import non_finite
from train_bench.references.parts.transducer_loss import transducer_loss
from train_bench.references.rnnt import data
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.decoding import greedy
from train_bench.references.rnnt.model import RNNT, joined_length, tensor_names
from train_bench.references.rnnt.quality import word_errors
from train_bench.references.rnnt.recipe import follow, optimizer_of, schedule_of
from train_bench.references.rnnt.tokens import text_of
from train_bench.task import DataFacts


class Task(ServesEvaluationSet[Config, data.Batch]):
    """The benchmark `rnnt` and its smaller scales. What is evaluated are averaged weights."""

    def build(self, seed: int, parallel: Parallel) -> None:
        """Build as any other task; then the average begins with the weights that all ranks have."""
        super().build(seed, parallel)
        self._average.load_state_dict(self.model.state_dict())

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, device = self.config, self.parallel.device
        hyperparameters = config.hyperparameters
        self._schedule = schedule_of(config)
        model = RNNT(
            config.model,
            features=config.data.frame_stack * config.data.mel_filters,
            scale=hyperparameters.model_weights_initialization_scale,
        )
        # Copied before they move: on a GPU, moving flattens the weights of an LSTM, copying does not.
        self._average = copy.deepcopy(model).to(device).eval()
        model.to(device)
        self.tensor_names = tensor_names(model)  # the 7 parts of the network
        return model, optimizer_of(model, hyperparameters)

    def warm_up(self) -> None:
        batch = self.synthetic(self.local_batch_size)
        self.run_warmup(batch)
        self._decoded(*batch[:2])

    def synthetic(self, samples: int, *, share: float = 1.0) -> data.Batch:
        """A synthetic micro-batch of the longest samples or of a share of their length; reads no data."""
        return data.synthetic(self.config, samples, share=share)

    def dry_notes(self) -> Sequence[str]:
        """Limitations of a dry run's numbers."""
        seconds = self.config.hyperparameters.data_train_max_duration
        return (
            f"Utterances are padded to the longest of their batch, here all to {seconds:g} s, the longest there is, "
            f"with {data.LABELS_PER_SECOND} labels a second; their mean length is not known here.",
        )

    def open_data(self) -> DataFacts:
        """Find and check the utterances, start the loaders."""
        config, parallel = self.config, self.parallel
        hyperparameters, device = config.hyperparameters, parallel.device
        train, val, self._symbols = data.open_recordings(config)
        train_set = data.TrainingSet(
            utterances=train,
            data=config.data,
            hyperparameters=hyperparameters,
            generators=Generators(self.derived_seed("augmentation")),
        )
        eval_set = data.EvaluationSet(
            utterances=val, data=config.data, symbols=self._symbols, seed=self.derived_seed("dither")
        )
        self._eval_set = eval_set
        order = data.Bucketed(
            lengths=train.lengths,
            buckets=hyperparameters.data_train_num_buckets,
            seed=self.seed,
            global_batch_size=hyperparameters.global_batch_size,
            microbatches=self.microbatches,
        )
        size = config.data.eval_batch_size
        mine = stream.evaluation_order(len(val), size, parallel.rank, parallel.size, padded=False)
        fingerprint = self.use_loaders(
            loading.loader(train_set, config.data, device, self.sampler(order), collate=train_set.collate),
            loading.loader(eval_set, config.data, device, mine, collate=eval_set.collate),
        )
        # As the rules count them, the training samples are those of an epoch.
        return DataFacts(
            train_samples=config.samples_per_epoch, eval_samples=len(val), fingerprint=fingerprint
        )

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """Mean loss over the global batch. Dropout follows the seed, the rank and the iteration, so that a run
        continued from a checkpoint is unchanged. The average is not updated where the schedule skips a step."""
        hyperparameters, shape = self.config.hyperparameters, self.config.model
        torch.manual_seed(self.derived_seed("dropout", self.parallel.rank, self.iterations))
        for batch in self.micro_batches(batches):
            features, frame_counts, labels, label_counts = (
                part.to(self.parallel.device, non_blocking=True) for part in batch
            )
            logits = self.forward(features, labels).float()
            frames = joined_length(frame_counts, shape.time_stack)
            losses = transducer_loss(logits, labels, frames, label_counts, blank=shape.labels)
            self.backward(losses.mean())
        rate = self._schedule(self.optimizer_steps)
        if self.step(rate, clip_norm=hyperparameters.opt_gradient_clip_norm):
            follow(self._average, self.model, hyperparameters.model_eval_ema_factor)

    def evaluate(self) -> Quality:
        """`WER` of the averaged weights over the whole evaluation set; NaN once the loss or an averaged weight
        is not finite."""
        broken = int(non_finite(self.last_loss, *self._average.parameters()))
        errors = words = 0
        for features, frame_counts, transcripts in self.evaluation_batches():
            for wanted, symbols in zip(transcripts, self._decoded(features, frame_counts), strict=True):
                wrong, said = word_errors(wanted, text_of(symbols, self._symbols))
                errors, words = errors + wrong, words + said
        counts = torch.tensor([errors, words, broken], dtype=torch.int64, device=self.parallel.device)
        errors, words, broken = self.parallel.sum(counts).tolist()
        return Quality(metrics={"WER": math.nan if broken else errors / words})

    def _decoded(self, features: Tensor, frame_counts: Tensor) -> list[list[int]]:
        """The labels that the averaged weights hear in each utterance."""
        device = self.parallel.device
        counts = joined_length(frame_counts.to(device, non_blocking=True), self.config.model.time_stack)
        with self.parallel.inference():
            return greedy(
                self._average,
                features.to(device, non_blocking=True),
                counts,
                symbols_per_frame=self.config.eval_symbols,
                most_symbols=self.config.hyperparameters.eval_max_prediction_symbols,
            )

    def served_samples(self) -> int:
        """Utterances of the evaluation set."""
        return len(self._eval_set.utterances)

    def served_sample(self, index: int) -> tuple[Tensor, str]:
        """The features of an utterance and its transcript."""
        return self._eval_set[index]

    def answers(self, samples: Sequence[tuple[Tensor, str]]) -> Sequence[bytes]:
        """Transcript of each utterance, text in UTF-8."""
        features, frame_counts, _ = self._eval_set.collate(list(samples))
        return [text_of(symbols, self._symbols).encode() for symbols in self._decoded(features, frame_counts)]

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`WER` of the texts that were answered."""
        errors = words = 0
        for index, answer in enumerate(answers):
            wrong, said = word_errors(self.served_sample(index)[1], answer.decode())
            errors, words = errors + wrong, words + said
        return Quality(metrics={"WER": errors / words})

    def served_model(self) -> nn.Module:
        """The averaged network."""
        return self._average

    def weights(self) -> Mapping[str, Tensor]:
        """The averaged weights, which are what is evaluated."""
        return self._average.state_dict()

    def save(self, folder: Path) -> None:
        """The weights and their average."""
        checkpoint.save(folder, self.parallel, self._both(), self.optimizer, self._counters())

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Order, augmentation and dropout
        follow the seed of the run that was saved."""
        self._continue_from(checkpoint.load(folder, self.parallel, self._both(), self.optimizer))

    def _both(self) -> nn.Module:
        """The weights and their average, as one module to save."""
        return nn.ModuleDict({"model": self.model, "average": self._average})
