"""Two moons by Lightning: the callback starts the clock, decides when to validate, and ends the training."""

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, Dataset

from train_bench import Benchmark
from train_bench.own_trainer.lightning import TimeToTrain

TRAIN, EVAL = 2000, 1000


class Moons(Dataset):
    def __init__(self, split, samples):
        self.split, self.samples = split, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):  # data are read here, behind the start of the clock
        rng = np.random.default_rng((self.split, index))
        side, angle = int(rng.integers(2)), rng.uniform(0, np.pi)
        x = np.array([np.cos(angle), np.sin(angle)]) * (1 - 2 * side) + side * np.array([1, 0.5])
        return torch.tensor(x + rng.normal(0, 0.1, 2), dtype=torch.float32), float(side)


class Network(LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        torch.nn.init.normal_(self.layers[0].weight)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate)

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.layers(x)[:, 0], y.float())

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", ((self.layers(x)[:, 0] > 0) == y).double().mean(), batch_size=len(y))


benchmark = Benchmark()
benchmark.announce(**benchmark.hyperparameters)
batch, rate = (benchmark.hyperparameters[key] for key in ("global_batch_size", "opt_base_learning_rate"))

benchmark.init_start()
torch.manual_seed(benchmark.seed)
model = Network(rate)
benchmark.weights_initialized(*dict(model.named_parameters()))
trainer = Trainer(
    accelerator="cpu",
    max_epochs=-1,
    num_sanity_val_steps=0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[TimeToTrain(benchmark, TRAIN, EVAL, accuracy="accuracy")],
)
trainer.fit(model, DataLoader(Moons(0, TRAIN), batch, shuffle=True), DataLoader(Moons(1, EVAL), EVAL))
