"""Pretraining of a mixture of experts: train until the log perplexity of the evaluation set is low enough."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.progress import Mark, Progress
from train_bench.references.gpt_oss_20b.config import Config, Model
from train_bench.references.gpt_oss_20b.model import Decoder
from train_bench.references.parts.decoder.pretraining import PretrainingTask

ALIGNED = 8
"""Numbers of 16 bits in the 16 bytes of which rows of a grouped product are multiples."""


class Task(PretrainingTask[Config]):
    """The benchmark `gpt_oss_20b` and its smaller scale."""

    def build_network(self) -> nn.Module:
        _refuse_experts(self.config.model)
        self._decoder = Decoder(self.config.model)
        return self._decoder

    def train_until(self, mark: Mark) -> Progress:
        """As any; tells how evenly the experts were chosen in the latest micro-batch of each rank: the entropy in nats,
        a mean over layers, which is the logarithm of the number of experts where all are chosen alike."""
        progress = super().train_until(mark)
        load = self.parallel.sum(self._decoder.load())
        shares = load / load.sum(dim=1, keepdim=True)
        entropy = -torch.special.xlogy(shares, shares).sum(dim=1).mean()
        return replace(progress, extras={"expert_load_entropy": entropy.item()})


def _refuse_experts(shape: Model) -> None:
    if not 1 <= shape.experts_per_token <= shape.experts:
        raise RequestError(
            f"model.experts_per_token is {shape.experts_per_token}; allowed are 1 to {shape.experts} (model.experts)."
        )
    if shape.width % ALIGNED or shape.intermediate % ALIGNED:
        raise RequestError(
            f"model.width is {shape.width} and model.intermediate {shape.intermediate}; products of experts need "
            f"multiples of {ALIGNED}."
        )
    if shape.window < 1:
        raise RequestError(f"model.window is {shape.window}; a token attends to itself at least, which is 1.")
