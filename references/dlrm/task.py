"""Recommendation: train DLRM until the area under its ROC curve on the evaluation set suffices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench import papers
from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references._parts import loading, stream
from train_bench.references._parts.warm_up import without_trace
from train_bench.references.dlrm import data
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.model import DLRM, tensor_names
from train_bench.references.dlrm.quality import roc_auc
from train_bench.references.dlrm.recipe import learning_rate
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken

CHECKPOINT = "checkpoint.pt"


class Task:
    """The benchmark `dlrm` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._taken = 0
        self._step = 0
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[data.Batch] | None = None

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, optimizer, warm-up. Reads sizes from the configuration only."""
        config = self.config
        asked = config.hyperparameters
        self._seed, self._parallel = seed, parallel
        self._microbatches = asked.gradient_accumulation_steps
        stream.refuse_uneven_batches(config, parallel.size)
        self._share = asked.global_batch_size // (parallel.size * self._microbatches)
        torch.manual_seed(derive(seed, "weights"))
        self._model = DLRM(
            config.model, seed=seed, rank=parallel.rank, ranks=parallel.size, device=parallel.device
        )
        if config.compile:
            self._model.dense.compile()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0)
        self._forward: nn.Module = parallel.wrap(
            self._model,
            self._optimizer,
            gradient_accumulation_steps=self._microbatches,
            local_params=self._model.tables.parameters(),
        )
        self._last_loss = torch.zeros((), device=parallel.device)
        self._warm_up()

    def _warm_up(self) -> None:
        """Steps and an evaluation batch on synthetic data, undone (rules: initialisation may not touch the
        data set). All ranks look up the same rows."""
        config, parallel = self.config, self._parallel
        micro = data.synthetic(config, self._share)
        kept = self._model.tables.kept(micro[2].to(parallel.device))
        with kept, without_trace(self._model.dense, self._optimizer, parallel):
            for _ in range(config.warm_up_steps):
                self._train_step(iter([micro] * self._microbatches))
            if config.warm_up_steps:
                self._score(data.synthetic(config, config.data.eval_batch_size))
        self._taken = self._step = 0
        self._last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """All tables as one and every layer, as the rules name them (9 for the full model)."""
        return tensor_names(self.config.model)

    def open_data(self) -> DataFacts:
        """Find and check the records, start the loaders."""
        config, parallel = self.config, self._parallel
        train, val = data.open_records(config)
        self._train_set = data.RecordSet(records=train, model=config.model)
        batches = data.evaluation_order(len(val), config.data.eval_batch_size, parallel.rank, parallel.size)
        self._mine = sum(count for ((_, count),) in batches)
        eval_set = data.RecordSet(records=val, model=config.model)
        self._eval = self._loader(eval_set, batches)
        self._train = self._from_here()
        self._batches = iter(self._train)
        return DataFacts(
            train_samples=len(train),
            eval_samples=len(val),
            fingerprint=loading.fingerprint_of(self._train, self._eval),
        )

    def _loader(self, dataset: data.RecordSet, order: Iterable[list[tuple[int, int]]]) -> loading.Loader:
        device, asked = self._parallel.device, self.config.data
        return loading.loader(dataset, asked, device, order, collate=None, numbers=data.numbers_of)

    def _from_here(self) -> loading.Loader:
        """The endless stream of this rank's micro-batches from the present step on."""
        order = data.Order(
            samples=len(self._train_set.records),
            seed=self._seed,
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self._microbatches,
            rank=self._parallel.rank,
            ranks=self._parallel.size,
            first_step=self._taken,
        )
        return self._loader(self._train_set, order)

    def train_until(self, mark: Mark) -> Progress:
        """Whole batches until `mark.count` samples are consumed. The schedule stands still where a step
        was skipped for an overflow; the data do not."""
        assert self._batches is not None, "open_data comes first"
        batch_size = self.config.hyperparameters.global_batch_size
        for _ in range(self._taken, math.ceil(mark.count / batch_size)):
            self._train_step(self._batches)
        return Progress(samples=self._taken * batch_size)

    def _train_step(self, batches: Iterator[data.Batch]) -> None:
        """One step of the global batch: the loss is the mean over it."""
        parallel = self._parallel
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self._step + 1, self.config.hyperparameters)
        for microbatch in range(1, self._microbatches + 1):
            labels, dense, rows = self._on_device(next(batches))
            with parallel.forward(last_microbatch=microbatch == self._microbatches):
                loss = functional.binary_cross_entropy_with_logits(self._forward(dense, rows), labels)
                parallel.backward(loss / self._microbatches)
        self._last_loss = loss.detach()
        self._step += int(parallel.step())
        self._taken += 1

    def _on_device(self, batch: data.Batch) -> data.Batch:
        device = self._parallel.device
        labels, dense, rows = (part.to(device, non_blocking=True) for part in batch)
        return labels, dense, rows

    def evaluate(self) -> Quality:
        """`AUC`, the exact area under the ROC curve over all evaluation samples; NaN once the loss or a score is
        not finite. A rank's scores leave its device once, at the end."""
        assert self._eval is not None, "open_data comes first"
        scores = torch.empty(self._mine, device=self._parallel.device)
        labels = torch.empty(self._mine, dtype=torch.bool)
        seen = 0
        for batch in self._eval:
            found = self._score(batch)
            end = seen + len(batch[0])
            scores[seen:end], labels[seen:end] = found, batch[0].bool()
            seen = end
        broken = ~torch.isfinite(scores).all() | ~torch.isfinite(self._last_loss)
        if int(self._parallel.sum(broken.long())):
            return Quality(metrics={"AUC": math.nan})
        return Quality(metrics={"AUC": roc_auc(scores.cpu().numpy(), labels.numpy(), self._parallel)})

    def _score(self, batch: data.Batch) -> Tensor:
        """float32 (b,) logits, which are in the order of the probabilities. A short batch is filled up, because
        ranks exchange equal shares."""
        _, dense, rows = self._on_device(batch)
        count = len(rows)
        missing = self.config.data.eval_batch_size - count
        with self._parallel.inference():
            logits: Tensor = self._forward(
                functional.pad(dense, (0, 0, 0, missing)), functional.pad(rows, (0, 0, 0, missing))
            )
        return logits[:count]

    def samples_taken(self) -> SamplesTaken:
        """Which samples this rank has trained and evaluated on."""
        assert self._train is not None and self._eval is not None, "open_data comes first"
        return loading.samples_taken(self._train, self._eval)

    def save(self, folder: Path) -> None:
        """Called by every rank. Each writes its tables under names of this step, then rank 0 the rest, which
        names the step, then the tables of earlier steps go: whenever this ends, a whole checkpoint is left."""
        folder.mkdir(parents=True, exist_ok=True)
        for table, weight in self._model.tables.weights.items():
            with papers.whole_file(_table_file(folder, table, self._taken)) as file:
                torch.save(weight.detach(), file)
        self._parallel.barrier()
        if self._parallel.rank == 0:
            state = {
                "dense": self._model.dense.state_dict(),
                "parallel": self._parallel.state_dict(),
                "seed": self._seed,
                "step": self._step,
                "taken": self._taken,
            }
            with papers.whole_file(folder / CHECKPOINT) as file:
                torch.save(state, file)
            now = {_table_file(folder, table, self._taken) for table in range(len(self.config.model.rows))}
            for old in set(folder.glob("table_*.pt")) - now:
                old.unlink()
        self._parallel.barrier()

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Each reads its own tables, whoever
        has written them. The order follows the seed of the run that was saved. Plain SGD has no state."""
        device = self._parallel.device
        state = torch.load(folder / CHECKPOINT, map_location=device, weights_only=True)
        self._model.dense.load_state_dict(state["dense"])
        with torch.no_grad():
            for table, weight in self._model.tables.weights.items():
                file = _table_file(folder, table, state["taken"])
                weight.copy_(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
        self._parallel.load_state_dict(state["parallel"])
        self._seed, self._step, self._taken = state["seed"], state["step"], state["taken"]
        if self._batches is not None:
            self.open_data()

    def close(self) -> None:
        """Stop the loaders' processes."""
        self._batches = self._train = self._eval = None


def _table_file(folder: Path, table: str | int, taken: int) -> Path:
    return folder / f"table_{table}_step_{taken}.pt"
