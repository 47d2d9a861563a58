"""Train until the item that a user chose is among the ten best of a hundred often enough."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.quality import Quality
from train_bench.references.parts.array_task import ArrayTask
from train_bench.references.parts.optimizers import Adam

from .config import Config, Model

Batch = tuple[Tensor, ...]
"""int64 (b,) items, float32 (b,) labels, int64 (b,) users; or int64 (b, c) candidates, (b,) places, (b,) users."""


class NeuMF(nn.Module):
    """Neural matrix factorization (He et al. 2017): a product of embeddings, beside a perceptron over others."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.factors
        self.users, self.items = nn.Embedding(model.users, 2 * width), nn.Embedding(model.items, 2 * width)
        layers = nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU()
        self.perceptron = nn.Sequential(*layers)
        self.last = nn.Linear(2 * width, 1)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """float32, a score for each pair; both have the same shape."""
        (user, other_user), (item, other_item) = (
            table(rows).chunk(2, dim=-1) for table, rows in ((self.users, users), (self.items, items))
        )
        deep = self.perceptron(torch.cat([other_user, other_item], dim=-1))
        return self.last(torch.cat([user * item, deep], dim=-1)).squeeze(-1)  # type: ignore[no-any-return]


class Task(ArrayTask[Config]):
    """What makes this benchmark; the rest is in `train_bench/references/parts/training.py`."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = NeuMF(self.config.model).to(self.parallel.device)
        return model, Adam(model.parameters(), lr=self.config.hyperparameters.opt_base_learning_rate)

    def synthetic(self, samples: int) -> Batch:
        rows = torch.arange(samples)
        return rows % self.config.model.items, (rows % 2).float(), rows % self.config.model.users

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))

    def train_step(self, batches: Iterator[Batch]) -> None:
        for batch in self.micro_batches(batches):
            items, labels, users = self.on_device(batch)
            self.backward(functional.binary_cross_entropy_with_logits(self.forward(users, items), labels))
        self.step()

    def measure(self, batch: Batch) -> Tensor:
        """int64 (2,): users whose chosen item is among the best, and users."""
        candidates, places, users = self.on_device(batch)
        with self.parallel.inference():
            scores = self.forward(users[:, None].expand_as(candidates), candidates)
        better = (scores >= scores.gather(1, places[:, None])).sum(dim=1)  # itself among them
        return torch.stack([(better <= 10).sum(), torch.ones_like(places).sum()])

    def evaluate(self) -> Quality:
        """`hr_at_10`, the share of users whose chosen item is among the ten best, over all users."""
        hits, seen = self.total(torch.zeros(2, dtype=torch.int64)).tolist()
        return Quality(metrics={"hr_at_10": math.nan if self.has_diverged() else hits / seen})
