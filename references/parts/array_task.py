"""Training on a data set of arrays: `class Task(ArrayTask[Config])` adds the benchmark's part of a `TrainingTask`.

_build_model()          model and optimizer
_synthetic(samples)     a synthetic batch
_train_step(batches)    one iteration
_measure(batch)         what an evaluation adds up over all batches
evaluate()              metrics of `self._total(zeros)`
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from torch import Tensor

from train_bench.references.parts import arrays, loading, stream
from train_bench.references.parts.training import TrainingTask
from train_bench.task import DataFacts

C = TypeVar("C", bound=Any)
Batch = tuple[Tensor, ...]


class ArrayTask(TrainingTask[C, Batch]):
    """Batches are tuples: a tensor of each array of the data set, in the order of their names."""

    @abstractmethod
    def _synthetic(self, samples: int) -> Batch:
        """A batch of so many samples that were not read anywhere."""

    @abstractmethod
    def _measure(self, batch: Batch) -> Tensor:
        """Metric sums of one batch; called in `self._parallel.inference()`."""

    def synthetic(self, samples: int) -> Batch:
        """See `_synthetic`."""
        return self._synthetic(samples)

    def _warm_up(self) -> None:
        self._run_warmup(self._synthetic(self._local_batch_size))
        self._measure(self._synthetic(self.config.data.eval_batch_size))

    def open_data(self) -> DataFacts:
        """Open the arrays; every epoch is a fresh permutation, and an evaluation sees every sample once."""
        data_config, parallel = self.config.data, self._parallel
        train, val = arrays.open_splits(self.config)
        order = stream.Shuffled(samples=len(train), seed=self._seed)
        mine = stream.evaluation_order(
            len(val), data_config.eval_batch_size, parallel.rank, parallel.size, padded=False
        )
        fingerprint = self._use_loaders(
            loading.loader(train, data_config, parallel.device, self._sampler(order), collate=None),
            loading.loader(val, data_config, parallel.device, mine, collate=None),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def _on_device(self, batch: Batch) -> Batch:
        return tuple(part.to(self._parallel.device, non_blocking=True) for part in batch)

    def _total(self, zeros: Tensor) -> Tensor:
        """The sum of `_measure` over the whole evaluation set, of all ranks; `zeros` has its shape and type."""
        return self._reduce_over_eval(self._measure, zeros.to(self._parallel.device))
