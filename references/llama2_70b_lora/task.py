"""Fine-tuning: low-rank adapters of a pretrained decoder, trained to a target loss on the evaluation set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.errors import RequestError
from train_bench.quality import Quality
from train_bench.references.llama2_70b_lora import data
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder, add_adapters
from train_bench.references.llama2_70b_lora.recipe import optimizer_of, schedule_of
from train_bench.references.parts import arrays
from train_bench.references.parts.array_task import ArrayTask, Batch
from train_bench.references.parts.decoder.weights import load_start_weights
from train_bench.references.parts.recompute import recompute
from train_bench.references.parts.undrawn import undrawn


class Task(ArrayTask[Config]):
    """The benchmark `llama2_70b_lora` and its smaller scale. Batches are labels and tokens."""

    eval_padding = MappingProxyType({"tokens": 0, arrays.LABELS: data.NOT_COUNTED})

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, given = self.config, self.config.hyperparameters
        config.model.check()
        if given.lora_rank < 1:
            raise RequestError(f"hyperparameters.lora_rank is {given.lora_rank}; allowed are 1 and more.")
        self._schedule = schedule_of(given)
        start = data.start_weights_file(config)

        def make() -> nn.Module:
            plain = partial(Decoder, config.model)
            base = plain() if start is None else undrawn(plain)()
            add_adapters(
                base, rank=given.lora_rank, alpha=given.lora_alpha, dropout=config.model.lora_dropout
            )
            return base

        model = self.parallel.construct(make)
        if start is not None:
            load_start_weights(model, start, frozen_only=True)
        if config.activation_checkpointing:
            recompute(model.get_submodule("layers").children(), draws=config.model.lora_dropout > 0)
        self.tensor_names = [name for name, one in model.named_parameters() if one.requires_grad]
        return model, optimizer_of(model, given)

    def synthetic(self, samples: int) -> Batch:
        return data.synthetic(self.config, samples)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """The mean over the tokens of the micro-batch that count. What is dropped follows the seed, the rank and the
        iteration, so that a run that was saved goes on as it would have."""
        torch.manual_seed(self.derived_seed("dropout", self.parallel.rank, self.iterations))
        for batch in self.micro_batches(batches):
            labels, tokens = self.on_device(batch)
            self.backward(self.forward(tokens.long(), _targets(labels)))
        clip_norm = self.config.hyperparameters.opt_gradient_clip_norm
        self.step(self._schedule(self.optimizer_steps), clip_norm=clip_norm)

    def evaluate(self) -> Quality:
        """`eval_loss`: the mean over sequences of the mean over their tokens that count; NaN once the loss is not
        finite."""
        nats, count = self.total(torch.zeros(2, dtype=torch.float64)).tolist()
        return Quality(metrics={"eval_loss": math.nan if self.has_diverged() else nats / count})

    def measure(self, batch: Batch) -> Tensor:
        """float64 (2,): the sum of the sequences' means in nats, and how many these are."""
        labels, tokens = self.on_device(batch)
        nats = self.infer(tokens.long(), _targets(labels), False).double()
        counted = (labels[:, 1:] != data.NOT_COUNTED).sum(dim=1)  # 0 of padding
        means = nats.sum(dim=1) / counted.clamp(min=1)
        return torch.stack([means.sum(), (counted > 0).sum().double()])


def _targets(labels: Tensor) -> Tensor:
    """int64 (samples, length): of each token the next one's label; the last has none."""
    return functional.pad(labels[:, 1:].long(), (0, 1), value=data.NOT_COUNTED)
