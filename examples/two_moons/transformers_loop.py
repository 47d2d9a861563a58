"""Two moons by the Trainer of Transformers: the callback starts the clock, decides when to evaluate, and ends it."""

from functools import cache

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from train_bench.own_trainer.transformers import TimeToTrain

TRAIN, EVAL = 2000, 1000


@cache
def moons():  # first called by a loader, behind the start of the clock
    rng = np.random.default_rng(0)
    side, angle = rng.integers(2, size=TRAIN + EVAL), rng.uniform(0, np.pi, TRAIN + EVAL)
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 - 2 * side)[:, None] + side[:, None] * [1, 0.5]
    return {"x": torch.tensor(x + rng.normal(0, 0.1, x.shape)).float(), "labels": torch.tensor(side).float()}


def batch_of(chosen):
    return {name: part[chosen] for name, part in moons().items()}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
        nn.init.normal_(self.layers[0].weight)

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


timer = TimeToTrain(accuracy="eval_accuracy")
values, ranks = timer.benchmark.hyperparameters, timer.benchmark.world_size
arguments = TrainingArguments(
    per_device_train_batch_size=values["global_batch_size"] // ranks,
    per_device_eval_batch_size=EVAL,
    num_train_epochs=1000,
    max_grad_norm=0.0,
    lr_scheduler_type="constant",
    use_cpu=True,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
model = Network()
trainer = Trainer(
    model,
    arguments,
    callbacks=[timer],
    optimizers=(torch.optim.SGD(model.parameters(), lr=values["opt_base_learning_rate"]), None),
    train_dataset=range(TRAIN),
    eval_dataset=range(TRAIN, TRAIN + EVAL),
    data_collator=batch_of,
    compute_metrics=lambda found: {"accuracy": ((found.predictions > 0) == found.label_ids).mean()},
)
trainer.train()
