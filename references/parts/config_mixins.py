"""Mixins of configurations: start weights of a backbone, groups of ranks for batch norm. No heavy imports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self


class BackboneWeights:
    """A configuration whose `model.start_weights` names a file of backbone weights, in `data_dir` unless absolute."""

    __slots__ = ()

    if TYPE_CHECKING:
        model: Any
        data_dir: str | None

    def start_weights_file(self) -> Path | None:
        """Path of the backbone's start weights; None if it starts from random ones."""
        if self.model.start_weights is None:
            return None
        return Path(self.data_dir or ".") / self.model.start_weights


class BatchNormGroups:
    """A configuration whose `hyperparameters.model_bn_span` counts the samples of a batch-norm statistic; None: those
    of a rank's micro-batch."""

    __slots__ = ()

    if TYPE_CHECKING:
        hyperparameters: Any

    def local_batch_size(self, ranks: int) -> int:
        """Samples per rank and micro-batch, rounded down."""
        hyperparameters = self.hyperparameters
        size: int = hyperparameters.global_batch_size // (ranks * hyperparameters.gradient_accumulation_steps)
        return size

    def batch_norm_ranks(self, ranks: int) -> int:
        """Neighbouring ranks that share batch-norm statistics: as many as `model_bn_span` has room for,
        at least one and at most all."""
        local = max(1, self.local_batch_size(ranks))
        return max(1, min(ranks, (self.hyperparameters.model_bn_span or local) // local))

    def for_ranks(self, ranks: int) -> Self:
        """With `model_bn_span` as it will be: the micro-batches of the ranks that share statistics."""
        span = self.batch_norm_ranks(ranks) * self.local_batch_size(ranks)
        hyperparameters = replace(self.hyperparameters, model_bn_span=max(1, span))
        return replace(self, hyperparameters=hyperparameters)  # type: ignore[type-var]
