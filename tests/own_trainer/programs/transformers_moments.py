"""When the Trainer of Transformers evaluates for a `Benchmark`, and what the callback refuses: a line of JSON."""

import json
import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import Trainer

from tests.own_trainer.programs.fake_benchmark import FakeBenchmark
from tests.own_trainer.programs.transformers_loop import arguments_of
from train_bench.own_trainer.transformers import TimeToTrain


class Ten(Dataset):
    """Ten samples; notes what had been said when the first was read."""

    def __init__(self, benchmark):
        self.benchmark, self.before = benchmark, None

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if self.before is None:
            self.before = list(self.benchmark.said)
        return {"x": torch.ones(2) * index, "labels": torch.ones(1)}


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)

    def forward(self, x, labels):
        return {"loss": (self.line(x) - labels).square().mean(), "logits": self.line(x)}


def fit(folder, *counts, resume=None, name="eval_loss", **changes):
    benchmark = FakeBenchmark(*counts)
    data = Ten(benchmark)
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 9, "learning_rate": 0.001}
    settings |= {"per_device_eval_batch_size": 5, **changes}
    trainer = Trainer(
        Line(),
        arguments_of(folder, 1, **settings),
        callbacks=[TimeToTrain(benchmark, 10, 2, top1=name)],
        train_dataset=data,
        eval_dataset=Ten(FakeBenchmark()),
    )
    try:
        trainer.train(resume_from_checkpoint=resume)
    except ValueError as error:
        return {"refused": str(error), "read": data.before is not None}
    return {"evaluated": benchmark.evaluated, "before": data.before, "steps": trainer.state.global_step}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        found = {
            "whole batches": fit(scratch, 7, 10, 23),
            "parts of batches": fit(scratch, 7, 10, 23, dataloader_drop_last=False),
            "accumulated": fit(scratch, 7, 10, 23, gradient_accumulation_steps=2),
            "short last step": fit(scratch, 7, 10, 23, gradient_accumulation_steps=3),
            "own interval": fit(scratch, 7, 10, 23, eval_strategy="steps", eval_steps=1),
            "every epoch": fit(scratch, 7, 10, 23, eval_strategy="epoch"),
            "on start": fit(scratch, 7, 10, 23, eval_on_start=True),
            "other name": fit(scratch, 7, name="eval_accuracy"),
            "kept": fit(scratch, 7, 10, save_strategy="steps", save_steps=1),
            "resumed": fit(scratch, 7, 10, resume=True),
            "too short": fit(scratch, 7, 23, num_train_epochs=1),
        }
        sys.stdout.write(json.dumps(found))
