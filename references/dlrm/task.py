"""Recommendation: DLRM, trained to a target area under the ROC curve (AUC) on the evaluation set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from train_bench.references.dlrm import data
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.model import DLRM, tensor_names
from train_bench.references.dlrm.recipe import learning_rate
from train_bench.references.parts.optimizers import SGD
from train_bench.references.parts.recommendation.data import Batch
from train_bench.references.parts.recommendation.training import RecommendationTask


class Task(RecommendationTask[Config]):
    """The benchmark `dlrm` and its smaller scales."""

    def build_model(self) -> tuple[DLRM, torch.optim.Optimizer]:
        parallel = self.parallel
        self.tensor_names = tensor_names(
            self.config.model
        )  # all tables as one, and 8 layers of the full model
        model = DLRM(
            self.config.model,
            seed=self.seed,
            rank=parallel.rank,
            ranks=parallel.size,
            device=parallel.device,
        )
        return model, SGD(model.parameters(), lr=0.0)

    def synthetic(self, samples: int) -> Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def batching(self) -> Callable[[np.ndarray], Batch]:
        return partial(data.as_batch, model=self.config.model)

    def rate(self) -> float:
        return learning_rate(
            self.optimizer_steps + 1,
            self.config.hyperparameters,
            hold_warmup_rate=self.config.hold_warmup_rate,
        )
