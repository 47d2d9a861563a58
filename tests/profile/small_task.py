"""A benchmark of a few milliseconds a step, and faults to plant in it, each while a `with` lasts."""

import time
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import nn

from tests.run.fakes import fingerprint, job
from train_bench.check.one_rank import OneRank
from train_bench.profile import document, rank
from train_bench.progress import EvalSchedule, Progress
from train_bench.quality import Quality
from train_bench.task import DataFacts

BATCH, WIDTH = 256, 384


class SmallTask:
    """Learns a sum of its inputs."""

    def build(self, seed, parallel):
        torch.manual_seed(seed)
        self.parallel = parallel
        parts = (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        self.model = nn.Sequential(*parts)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.forward = parallel.wrap(self.model, self.optimizer)
        self.batches = torch.randn(4, BATCH, WIDTH)

    def open_data(self):
        self.taken = 0
        return DataFacts(train_samples=100, eval_samples=10, fingerprint=fingerprint(100))

    def batch(self):
        return self.batches[self.taken % 4]

    def between(self, hidden):
        """What the model does between its layers; nothing."""
        return hidden

    def train_until(self, mark):
        while self.taken * BATCH < mark.count:
            inputs = self.batch()
            with self.parallel.forward():
                hidden = self.between(self.forward[1](self.forward[0](inputs)))
                outputs = self.forward[4](self.forward[3](self.forward[2](hidden)))
                self.parallel.backward((outputs[:, 0] - inputs.sum(1)).square().mean())
            self.parallel.step()
            self.taken += 1
        return Progress(samples=mark.count)

    def evaluate(self):
        return Quality(metrics={"top1": 0.5})

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), folder / "weights.pt")

    def load(self, folder):
        self.model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        self.taken = 0

    def close(self): ...


@contextmanager
def a_sleep_in_the_loader():
    def slow(self):
        time.sleep(0.02)
        return self.batches[self.taken % 4]

    with patch.object(SmallTask, "batch", slow):
        yield


@contextmanager
def a_layer_in_double_precision():
    build = SmallTask.build

    def doubled(self, seed, parallel):
        build(self, seed, parallel)
        double = self.model[2].double().forward
        self.model[2].forward = lambda inputs: double(inputs.double()).float()

    with patch.object(SmallTask, "build", doubled):
        yield


@contextmanager
def a_synchronising_item():
    def looked_at(self, hidden):
        assert hidden.sum().item() > 0
        return hidden

    with patch.object(SmallTask, "between", looked_at):
        yield


@contextmanager
def a_needless_copy():
    def copied(self, hidden):
        for _ in range(600):
            hidden = hidden.clone()
        return hidden

    with patch.object(SmallTask, "between", copied):
        yield


def profiled(folder, *, steps=4, rounds=2, bound=False):
    """The profile of the small benchmark on one rank."""
    schedule = EvalSchedule(first=1, period=1, until=4, samples_per_unit=BATCH * 10)
    asked = job(
        folder,
        schedule=schedule,
        config={"hyperparameters": {"global_batch_size": BATCH}, "data": {"workers": 0}},
        work="profile",
        work_options={"steps": steps, "rounds": rounds, "peak_tflops": 0.05, "bound": bound, "bricks": None},
    )
    return document.profile(asked, [rank.measure(asked, SmallTask(), OneRank())])
