"""Training on a data set of arrays: `class Task(ArrayTask[Config])` adds the benchmark's part of a `TrainingTask`.

build_model()          model and optimizer
synthetic(samples)     a synthetic batch
train_step(batches)    one iteration
measure(batch)         what an evaluation adds up over all batches
evaluate()             metrics of `self.total(zeros)`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from train_bench.references.parts import arrays, loading, resident, stream
from train_bench.references.parts.training import TrainingTask
from train_bench.task import DataFacts

C = TypeVar("C", bound=Any)
Batch = tuple[Tensor, ...]


class ArrayTask(TrainingTask[C, Batch]):
    """Batches are tuples: a tensor of each array of the data set, in the order of their names.

    eval_padding  what samples that fill batches of an evaluation are made of, by the name of the array, so that every
                  rank has equally many; None: the last batch of a rank may be short or missing
    """

    eval_padding: ClassVar[Mapping[str, int] | None] = None

    @abstractmethod
    def synthetic(self, samples: int) -> Batch:
        """A synthetic batch; reads no data."""

    @abstractmethod
    def measure(self, batch: Batch) -> Tensor:
        """Metric sums of one batch; called in `self.parallel.inference()`."""

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self.measure(self.synthetic(self.config.data.eval_batch_size))

    def open_data(self) -> DataFacts:
        """Open the arrays; every epoch is a fresh permutation, and an evaluation sees every sample once."""
        data_config, parallel = self.config.data, self.parallel
        train, val = arrays.open_splits(self.config)
        order = stream.Shuffled(samples=len(train), seed=self.seed)
        padded = self.eval_padding is not None
        val = replace(val, padding=self.eval_padding or {})
        mine = stream.evaluation_order(
            len(val), data_config.eval_batch_size, parallel.rank, parallel.size, padded=padded
        )
        fingerprint = self.use_loaders(
            loading.loader(
                train, data_config, parallel.device, self.sampler(order), collate=None, rows=len(train)
            ),
            loading.loader(
                val,
                data_config,
                parallel.device,
                mine,
                collate=None,
                padding_from=len(val),
                rows=len(val) + padded,
            ),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def device_sets(self) -> int:
        """Bytes of the data sets that a GPU holds."""
        config = self.config
        sets = (config.train_samples, 0), (config.eval_samples, int(self.eval_padding is not None))
        return resident.size_of(self.synthetic(1), config.data.workers, *sets)

    def on_device(self, batch: Batch) -> Batch:
        """The batch on this rank's device."""
        return tuple(part.to(self.parallel.device, non_blocking=True) for part in batch)

    def total(self, zeros: Tensor) -> Tensor:
        """The sum of `measure` over the whole evaluation set, of all ranks; `zeros` has its shape and type."""
        return self.reduce_over_eval(self.measure, zeros.to(self.parallel.device))
