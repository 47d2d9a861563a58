"""When Lightning evaluates for a `Benchmark`, and what the callback refuses: a line of JSON."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, Dataset

from tests.own_trainer.programs.fake_benchmark import FakeBenchmark
from tests.own_trainer.programs.lightning_loop import SETTINGS
from train_bench.own_trainer.lightning import TimeToTrain


class Ten(Dataset):
    """Ten samples; notes what had been said when the first was read."""

    def __init__(self, benchmark):
        self.benchmark, self.before = benchmark, None

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if self.before is None:
            self.before = list(self.benchmark.said)
        return torch.ones(2) * index


class Line(LightningModule):
    def __init__(self, synced):
        super().__init__()
        self.line, self.synced = torch.nn.Linear(2, 1), synced

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)

    def training_step(self, batch, _):
        return self.line(batch).mean()

    def validation_step(self, batch, _):
        self.log("seen", float(self.global_rank), batch_size=len(batch), sync_dist=self.synced)


def fit(*counts, synced=True, name="seen", keep=None, resume=None, **changes):
    benchmark = FakeBenchmark(*counts)
    data = Ten(benchmark)
    try:
        trainer = Trainer(
            callbacks=[TimeToTrain(benchmark, 10, 2, top1=name)],
            **{**SETTINGS, "num_sanity_val_steps": 0, "max_epochs": -1, **changes},
        )
        trainer.fit(
            Line(synced), DataLoader(data, batch_size=4), DataLoader(torch.ones(2, 2)), ckpt_path=resume
        )
        if keep:
            trainer.save_checkpoint(keep)
    except ValueError as error:
        return {"refused": str(error), "read": data.before is not None}
    return {"evaluated": benchmark.evaluated, "before": data.before, "steps": trainer.global_step}


def alone():
    kept = str(Path(tempfile.mkdtemp(), "kept.ckpt"))
    return {
        "kept": fit(7, 10, keep=kept),
        "resumed": fit(7, 10, resume=kept),
        "plain": fit(7, 10, 23),
        "accumulated": fit(7, 10, 23, accumulate_grad_batches=2),
        "own interval": fit(7, 10, 23, val_check_interval=0.34, check_val_every_n_epoch=1),
        "sanity": fit(7, 10, 23, num_sanity_val_steps=2),
        "min_steps": fit(7, min_steps=100),
        "both": fit(7, min_steps=100, limit_val_batches=0),
        "other name": fit(7, name="loss"),
        "no validation": fit(7, limit_val_batches=0),
        "too short": fit(7, 23, max_epochs=1),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "ranks" in sys.argv:
        torch.distributed.init_process_group("gloo")
        found = {str(synced): fit(7, devices=2, strategy="ddp", synced=synced) for synced in (True, False)}
        if torch.distributed.get_rank() == 0:
            sys.stdout.write(json.dumps(found))
        torch.distributed.destroy_process_group()
    else:
        sys.stdout.write(json.dumps(alone()))
