"""Decoder pretraining: `class Task(PretrainingTask[Config])` defines the network, trained to a target log perplexity on
the evaluation set."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from train_bench.quality import Quality
from train_bench.references.parts import loading, resident, stream
from train_bench.references.parts.decoder import data
from train_bench.references.parts.decoder.config import Config
from train_bench.references.parts.decoder.recipe import optimizer_of, schedule_of
from train_bench.references.parts.decoder.weights import load_start_weights
from train_bench.references.parts.recompute import recompute
from train_bench.references.parts.training import TrainingTask, non_finite
from train_bench.references.parts.undrawn import undrawn
from train_bench.task import DataFacts

C = TypeVar("C", bound=Config)


class PretrainingTask(TrainingTask[C, Tensor]):
    """Pretraining of a decoder on sequences with their next tokens."""

    @abstractmethod
    def build_network(self) -> nn.Module:
        """Network with random weights, called as `llama.Llama` is: with tokens and the next ones, it gives the
        mean of their nats, or with False behind them all; for `Parallel.construct`."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config = self.config
        config.model.check()
        self._schedule = schedule_of(config)
        if config.start_weights is None:
            model = self.parallel.construct(self.build_network)
        else:
            model = self.parallel.construct(undrawn(self.build_network))
            padded = config.model.rows > config.model.vocabulary
            load_start_weights(model, Path(config.start_weights), cut_rows=padded)
        if config.activation_checkpointing:
            recompute(model.get_submodule("layers").children())
        return model, optimizer_of(model, config.hyperparameters)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self._count(self.synthetic(self.config.data.eval_batch_size))

    def synthetic(self, samples: int) -> Tensor:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the tokens, start the loaders."""
        config, parallel = self.config, self.parallel
        train, val = data.open_sequences(config)
        train_set = data.BatchSet(train, permuted=config.data.permute_labels)
        order = data.training_order(config, len(train), self.seed)
        mine = stream.evaluation_order(
            len(val), config.data.eval_batch_size, parallel.data_rank, parallel.data_ranks
        )
        device = parallel.device
        fingerprint = self.use_loaders(
            loading.loader(
                train_set, config.data, device, self.sampler(order), collate=None, rows=len(train)
            ),
            loading.loader(
                data.BatchSet(val),
                config.data,
                device,
                mine,
                collate=None,
                padding_from=len(val),
                rows=len(val) + 1,
            ),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def device_sets(self) -> int:
        """Bytes of the data sets that a GPU holds."""
        config = self.config
        sets = (config.train_samples, 0), (config.eval_samples, 1)
        return resident.size_of(self.synthetic(1), config.data.workers, *sets)

    def train_step(self, batches: Iterator[Tensor]) -> None:
        """The mean over the tokens of the micro-batch of how surprising the next one was."""
        for tokens in self.micro_batches(batches):
            tokens = tokens.to(self.parallel.device, non_blocking=True)
            self.backward(self.forward(tokens[:, :-1], tokens[:, 1:]))
        clip_norm = self.config.hyperparameters.opt_gradient_clip_norm
        self.step(self._schedule(self.optimizer_steps), clip_norm=clip_norm)

    def evaluate(self) -> Quality:
        """`log_perplexity`: the mean over all tokens of the evaluation set; NaN once the loss is not finite."""
        start = torch.zeros(2, dtype=torch.float64, device=self.parallel.device)
        start[0] = torch.where(non_finite(self.last_loss) > 0, math.nan, 0.0)
        nats, count = self.reduce_over_eval(self._count, start).tolist()
        return Quality(metrics={"log_perplexity": nats / count})

    def _count(self, tokens: Tensor) -> Tensor:
        """float64 (2,): nats of all tokens of a batch, and how many these are."""
        tokens = tokens.to(self.parallel.device, non_blocking=True)
        wanted = tokens[:, 1:]
        nats = self.infer(tokens[:, :-1].clamp(min=0), wanted, False)
        return torch.stack([nats.double().sum(), (wanted != data.NO_TOKEN).sum().double()])
