"""Click prediction: `class Task(RecommendationTask[Config])` defines the network, trained to a target area under the
ROC curve (AUC) on the evaluation set."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.core import files
from train_bench.quality import Quality
from train_bench.references.parts import loading, resident
from train_bench.references.parts.compilation import compile_model
from train_bench.references.parts.recommendation import data
from train_bench.references.parts.recommendation.quality import roc_auc
from train_bench.references.parts.recommendation.tables import Tables
from train_bench.references.parts.serving import ServesEvaluationSet
from train_bench.task import DataFacts
from train_bench.warm_up import without_trace

CHECKPOINT = "checkpoint.pt"

SERVED_TOGETHER = 100
"""Records that one served sample has, as many as a user is shown: MLPerf's have 100 to 700."""

C = TypeVar("C", bound=Any)


class RecommendationTask(ServesEvaluationSet[C, data.Batch]):
    """Embedding tables are divided among ranks, the dense network is averaged over them."""

    model: Any
    """Has `tables`, a Tables of which this rank holds some, and `dense`, the rest, which is the same on all ranks."""

    @abstractmethod
    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""

    @abstractmethod
    def batching(self) -> Callable[[np.ndarray], data.Batch]:
        """Function from int32 records (n, columns) to a batch, in each loader process."""

    @abstractmethod
    def rate(self) -> float:
        """The learning rate of the step under way."""

    def _wrapped(self) -> nn.Module:
        """The dense part, compiled if configured, with gradients averaged over ranks."""
        compile_model(self.model.dense, self.config.compile_mode, self.parallel.device)
        return self.parallel.wrap(
            self.model,
            self.optimizer,
            gradient_accumulation_steps=self.microbatches,
            local_params=self.model.tables.parameters(),
        )

    @contextmanager
    def _without_trace(self) -> Iterator[None]:
        """Restore the table rows of the synthetic batch; all ranks look up the same ones."""
        model, optimizer = self.model, self.optimizer
        rows = self.synthetic(self.local_batch_size)[2].to(self.parallel.device)
        with model.tables.kept(rows, optimizer):
            tables = _taken_out(optimizer, model.tables)
            with without_trace(model.dense, optimizer, self.parallel):
                optimizer.state.update(tables)
                try:
                    yield
                finally:
                    tables = _taken_out(optimizer, model.tables)
            optimizer.state.update(tables)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self._score(self.synthetic(self.config.data.eval_batch_size))

    def open_data(self) -> DataFacts:
        """Find and check the records, start the loaders."""
        config, parallel = self.config, self.parallel
        train, val = data.open_records(config)
        batching = self.batching()
        train_set, eval_set = (data.RecordSet(records=each, as_batch=batching) for each in (train, val))
        self._eval_set = eval_set
        order = data.ShuffledBlocks(
            samples=len(train),
            seed=self.seed,
            global_batch_size=config.hyperparameters.global_batch_size,
        )
        mine = data.evaluation_order(len(val), config.data.eval_batch_size, parallel.rank, parallel.size)
        self._mine = sum(count for ((_, count),) in mine)
        train_loader, eval_loader = (
            loading.loader(
                each,
                config.data,
                parallel.device,
                sampler,
                collate=None,
                numbers=data.numbers_of,
                rows=rows,
                items=lambda rows: [(0, rows)],
            )
            for each, sampler, rows in ((train_set, self.sampler(order), len(train)), (eval_set, mine, 0))
        )
        fingerprint = self.use_loaders(train_loader, eval_loader)
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def device_sets(self) -> int:
        """Bytes of the data set of training, if a GPU holds it."""
        return resident.size_of(self.synthetic(1), self.config.data.workers, (self.config.train_samples, 0))

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """The loss is the mean over the global batch."""
        for batch in self.micro_batches(batches):
            labels, dense, rows = self.on_device(batch)
            logits = self.forward(dense, rows)
            self.backward(functional.binary_cross_entropy_with_logits(logits, labels))
        self.step(self.rate())

    def on_device(self, batch: data.Batch) -> data.Batch:
        device = self.parallel.device
        labels, dense, rows = (part.to(device, non_blocking=True) for part in batch)
        return labels, dense, rows

    def evaluate(self) -> Quality:
        """`AUC`, the exact area under the ROC curve over all evaluation samples; NaN once the loss or a score is
        not finite. A rank's scores leave its device once, at the end."""
        scores = torch.empty(self._mine, device=self.parallel.device)
        labels = torch.empty(self._mine, dtype=torch.bool)
        seen = 0
        for batch in self.evaluation_batches():
            end = seen + len(batch[0])
            scores[seen:end], labels[seen:end] = self._score(batch), batch[0].bool()
            seen = end
        if self.has_diverged(scores):
            return Quality(metrics={"AUC": math.nan})
        return Quality(metrics={"AUC": roc_auc(scores.cpu().numpy(), labels.numpy(), self.parallel)})

    def _score(self, batch: data.Batch) -> Tensor:
        """float32 (b,) logits, which are in the order of the probabilities. A short batch is filled up, because
        ranks exchange equal shares."""
        _, dense, rows = self.on_device(batch)
        count = len(rows)
        missing = self.config.data.eval_batch_size - count
        logits: Tensor = self.infer(
            functional.pad(dense, (0, 0, 0, missing)), functional.pad(rows, (0, 0, 0, missing))
        )
        return logits[:count]

    def served_samples(self) -> int:
        """Groups of records."""
        return -(-len(self._eval_set.records) // SERVED_TOGETHER)

    def served_sample(self, index: int) -> data.Batch:
        """A group of records."""
        first = index * SERVED_TOGETHER
        return self._eval_set[[(first, min(SERVED_TOGETHER, len(self._eval_set.records) - first))]]

    def answers(self, samples: Sequence[data.Batch]) -> Sequence[bytes]:
        """The logits of each group, float32."""
        return [self.infer(*self.on_device(batch)[1:]).float().cpu().numpy().tobytes() for batch in samples]

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """`AUC` of the logits that were answered."""
        scores = np.frombuffer(b"".join(answers), dtype="<f4")
        if not np.isfinite(scores).all():
            return Quality(metrics={"AUC": math.nan})
        labels = self._eval_set[[(0, len(self._eval_set.records))]][0].bool().numpy()
        return Quality(metrics={"AUC": roc_auc(scores, labels, self.parallel)})

    def save(self, folder: Path) -> None:
        """Called by every rank. Each writes its tables under names of this iteration, then rank 0 the rest, which
        names the iteration, then the tables of earlier ones go: whenever this ends, a whole checkpoint is left."""
        folder.mkdir(parents=True, exist_ok=True)
        for table, weight in self.model.tables.weights.items():
            with files.whole_file(_table_file(folder, table, self.iterations)) as file:
                torch.save({"weight": weight.detach(), **self.optimizer.state.get(weight, {})}, file)
        self.parallel.barrier()
        if self.parallel.rank == 0:
            state = {
                "dense": self.model.dense.state_dict(),
                "optimizer": [
                    self.optimizer.state.get(weight, {}) for weight in self.model.dense.parameters()
                ],
                "parallel": self.parallel.state_dict(),
                **self._counters(),
            }
            with files.whole_file(folder / CHECKPOINT) as file:
                torch.save(state, file)
            now = {
                _table_file(folder, table, self.iterations) for table in range(len(self.config.model.rows))
            }
            for old in set(folder.glob("table_*.pt")) - now:
                old.unlink()
        self.parallel.barrier()

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Each reads its own tables, whoever
        has written them. The order follows the seed of the run that was saved."""
        state = torch.load(folder / CHECKPOINT, map_location="cpu", weights_only=True, mmap=True)
        self.model.dense.load_state_dict(state["dense"])
        for weight, kept in zip(self.model.dense.parameters(), state["optimizer"], strict=True):
            _copy(self.optimizer.state.get(weight, {}), kept)
        for table, weight in self.model.tables.weights.items():
            file = _table_file(folder, table, state["taken"])
            kept = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            _copy({"weight": weight.detach(), **self.optimizer.state.get(weight, {})}, kept)
        self.parallel.load_state_dict(state["parallel"])
        self._continue_from(state)


def _taken_out(optimizer: torch.optim.Optimizer, tables: Tables) -> dict[Tensor, Any]:
    """Pop the optimizer state of the tables, which is as large as they are, without a copy."""
    return {
        weight: optimizer.state.pop(weight) for weight in tables.parameters() if weight in optimizer.state
    }


def _copy(into: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])


def _table_file(folder: Path, table: str | int, iterations: int) -> Path:
    return folder / f"table_{table}_step_{iterations}.pt"
