"""Two moons by the Trainer of Transformers: the callback starts the clock, decides when to evaluate, and ends it."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from train_bench import Benchmark
from train_bench.own_trainer.transformers import TimeToTrain

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
        return {"x": torch.tensor(x + rng.normal(0, 0.1, 2), dtype=torch.float32), "labels": side}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        torch.nn.init.normal_(self.layers[0].weight)

    def forward(self, x, labels):
        logits = self.layers(x)[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.float())
        return {"loss": loss, "logits": logits}


def accuracy(predicted):
    return {"accuracy": float(((predicted.predictions > 0) == predicted.label_ids).mean())}


benchmark = Benchmark()
benchmark.announce(**benchmark.hyperparameters)
batch, rate = (benchmark.hyperparameters[key] for key in ("global_batch_size", "opt_base_learning_rate"))
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=batch,
    per_device_eval_batch_size=EVAL,
    num_train_epochs=1000,
    max_grad_norm=0.0,
    lr_scheduler_type="constant",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    seed=benchmark.seed % 2**32,
)
benchmark.init_start()
torch.manual_seed(benchmark.seed)
model = Network()
benchmark.weights_initialized(*dict(model.named_parameters()))
trainer = Trainer(
    model,
    arguments,
    callbacks=[TimeToTrain(benchmark, TRAIN, EVAL, accuracy="eval_accuracy")],
    optimizers=(torch.optim.SGD(model.parameters(), lr=rate), None),
    train_dataset=Moons(0, TRAIN),
    eval_dataset=Moons(1, EVAL),
    compute_metrics=accuracy,
)
trainer.train()
