"""resnet_mini under the Trainer of Transformers: python transformers_loop.py [FOLDER SEED], or by torchrun."""

import os
import sys
import tempfile

import torch
from transformers import Trainer, TrainingArguments

from tests.own_trainer.programs import recipe
from train_bench import Benchmark
from train_bench.own_trainer.transformers import TimeToTrain


class Classifier(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.network = recipe.network(seed)

    def forward(self, images, labels):
        logits = self.network(images)
        return {"loss": recipe.loss_of(logits, labels), "logits": logits}


def as_names(examples):
    images, labels = zip(*examples, strict=True)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def train(benchmark: Benchmark, arguments: TrainingArguments):
    benchmark.announce(**recipe.hyperparameters(benchmark.world_size))
    benchmark.init_start()
    model = Classifier(benchmark.seed)
    optimizer = recipe.optimizer(model)
    benchmark.weights_initialized(*dict(model.network.named_parameters()))
    train_set, eval_set = recipe.splits(benchmark.seed, benchmark.rank)
    trainer = Trainer(
        model,
        arguments,
        callbacks=[TimeToTrain(benchmark, recipe.TRAIN, recipe.EVAL, top1="eval_accuracy")],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, recipe.rate)),
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=as_names,
        compute_metrics=accuracy,
    )
    trainer.train()


def arguments_of(folder: str, seed: int, **changes) -> TrainingArguments:
    """These begin torch.distributed, too."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    settings = {
        "per_device_train_batch_size": recipe.BATCH // ranks,
        "per_device_eval_batch_size": recipe.CONFIG.data.eval_batch_size,
        "num_train_epochs": 2 * recipe.EPOCHS,
        "dataloader_drop_last": True,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": seed % 2**32,
        "remove_unused_columns": False,
    }
    return TrainingArguments(folder, **{**settings, **changes})


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        run = recipe.run(*sys.argv[1:])
        train(run, arguments_of(scratch, run.seed))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
