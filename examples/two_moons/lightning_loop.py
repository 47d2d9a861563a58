"""Two moons by Lightning: the callback starts the clock, decides when to validate, and ends the training."""

from functools import cache

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader

from train_bench.own_trainer.lightning import TimeToTrain

TRAIN, EVAL = 2000, 1000


@cache
def moons():  # first called by a loader, behind the start of the clock
    rng = np.random.default_rng(0)
    side, angle = rng.integers(2, size=TRAIN + EVAL), rng.uniform(0, np.pi, TRAIN + EVAL)
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 - 2 * side)[:, None] + side[:, None] * [1, 0.5]
    return torch.tensor(x + rng.normal(0, 0.1, x.shape)).float(), torch.tensor(side).float()


class Network(LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.rate, self.loss = rate, nn.BCEWithLogitsLoss()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
        nn.init.normal_(self.layers[0].weight)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate)

    def training_step(self, batch):
        return self.loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch):
        right = ((self.layers(batch[0]) > 0) == batch[1]).double().mean()
        self.log("accuracy", right, batch_size=len(batch[1]), sync_dist=True)


def loader(samples, batch, **how):
    return DataLoader(samples, batch, collate_fn=lambda chosen: [part[chosen] for part in moons()], **how)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
timer = TimeToTrain(accuracy="accuracy")
values, ranks = timer.benchmark.hyperparameters, timer.benchmark.world_size
trainer = Trainer(
    accelerator="cpu",
    devices=ranks,
    strategy="ddp" if ranks > 1 else "auto",
    max_epochs=-1,
    callbacks=[timer],
)
train = loader(range(TRAIN), values["global_batch_size"] // ranks, shuffle=True)
trainer.fit(Network(values["opt_base_learning_rate"]), train, loader(range(TRAIN, TRAIN + EVAL), EVAL))
