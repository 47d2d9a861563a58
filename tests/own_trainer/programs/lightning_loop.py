"""resnet_mini under Lightning: python lightning_loop.py [FOLDER SEED], or by torchrun on several ranks."""

import os
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from tests.own_trainer.programs import recipe
from train_bench import Benchmark
from train_bench.own_trainer.lightning import TimeToTrain


class Classifier(LightningModule):
    def __init__(self, seed):
        super().__init__()
        self.network = recipe.network(seed)

    def configure_optimizers(self):
        optimizer = recipe.optimizer(self.network)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, recipe.rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch, _):
        images, labels = batch
        return recipe.loss_of(self.network(images), labels)

    def validation_step(self, batch, _):
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).double().mean()
        self.log("val_accuracy", right, batch_size=len(labels), sync_dist=True)


def train(benchmark: Benchmark, **changes):
    ranks = benchmark.world_size
    benchmark.announce(**recipe.hyperparameters(ranks))
    benchmark.init_start()
    model = Classifier(benchmark.seed)
    benchmark.weights_initialized(*dict(model.network.named_parameters()))
    train_set, eval_set = recipe.splits(benchmark.seed, benchmark.rank)
    trainer = Trainer(
        callbacks=[TimeToTrain(benchmark, recipe.TRAIN, recipe.EVAL, top1="val_accuracy")],
        num_sanity_val_steps=0,
        max_epochs=-1,
        **{**SETTINGS, "devices": ranks, "strategy": "ddp" if ranks > 1 else "auto", **changes},
    )
    trainer.fit(
        model,
        DataLoader(train_set, recipe.BATCH // ranks, shuffle=True, drop_last=True),
        DataLoader(eval_set, recipe.CONFIG.data.eval_batch_size),
    )


SETTINGS = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    train(recipe.run(*sys.argv[1:]))
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()
