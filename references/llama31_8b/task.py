"""Decoder pretraining: train until the log perplexity of the evaluation set is low enough."""

from __future__ import annotations

from torch import nn

from train_bench.references.llama31_8b.config import Config
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.parts.decoder.pretraining import PretrainingTask


class Task(PretrainingTask[Config]):
    """The benchmark `llama31_8b`, its smaller scales and its larger one."""

    def build_network(self) -> nn.Module:
        return Decoder(self.config.model)
