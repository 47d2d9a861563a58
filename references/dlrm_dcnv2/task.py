"""Recommendation: DLRM-DCNv2, trained to a target area under the ROC curve (AUC) on the evaluation set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from train_bench.references.dlrm_dcnv2 import data
from train_bench.references.dlrm_dcnv2.config import Config
from train_bench.references.dlrm_dcnv2.model import Network
from train_bench.references.parts.optimizers import Adagrad
from train_bench.references.parts.recommendation.data import Batch
from train_bench.references.parts.recommendation.training import RecommendationTask


class Task(RecommendationTask[Config]):
    """The benchmark `dlrm_dcnv2` and its smaller scales."""

    def build_model(self) -> tuple[Network, torch.optim.Optimizer]:
        parallel, hyperparameters = self.parallel, self.config.hyperparameters
        model = Network(
            self.config.model,
            seed=self.seed,
            rank=parallel.rank,
            ranks=parallel.size,
            device=parallel.device,
        )
        return model, Adagrad(
            model.parameters(),
            lr=hyperparameters.opt_base_learning_rate,
            lr_decay=hyperparameters.opt_adagrad_learning_rate_decay,
            initial_accumulator_value=hyperparameters.opt_adagrad_initial_accumulator_value,
            eps=hyperparameters.opt_adagrad_epsilon,
            # On CPUs the dense part is updated in one pass over its weights; None is the default of torch.
            fused=parallel.device.type == "cpu" or None,
        )

    def synthetic(self, samples: int) -> Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def batching(self) -> Callable[[np.ndarray], Batch]:
        return data.batching(self.config)

    def rate(self) -> float:
        return self.config.hyperparameters.opt_base_learning_rate
