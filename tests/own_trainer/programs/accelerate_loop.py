"""resnet_mini in a loop with Accelerate: python accelerate_loop.py [FOLDER SEED], or by torchrun on several ranks."""

import sys

import torch
import torch._dynamo  # before the process group, whose threads would else go on behind its end
from accelerate import Accelerator
from torch.utils.data import DataLoader

from tests.own_trainer.programs import recipe
from train_bench import Benchmark


def train(benchmark: Benchmark, accelerator: Accelerator):
    ranks = accelerator.num_processes
    benchmark.announce(**recipe.hyperparameters(ranks))
    benchmark.init_start()
    model = recipe.network(benchmark.seed)
    benchmark.weights_initialized(*dict(model.named_parameters()))
    model, optimizer = accelerator.prepare(model, recipe.optimizer(model))
    benchmark.init_stop()
    benchmark.run_start(train_samples=recipe.TRAIN, eval_samples=recipe.EVAL)
    train_set, eval_set = recipe.splits(benchmark.seed, accelerator.process_index)
    training, evaluation = accelerator.prepare(
        DataLoader(train_set, recipe.BATCH // ranks, shuffle=True, drop_last=True),
        DataLoader(eval_set, recipe.CONFIG.data.eval_batch_size),
    )
    batches, steps = endless(training), 0
    for mark in benchmark.blocks():
        while steps * recipe.BATCH < mark.count:
            images, labels = next(batches)
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate(steps)
            optimizer.zero_grad()
            accelerator.backward(recipe.loss_of(model(images), labels))
            optimizer.step()
            steps += 1
        benchmark.eval_start(samples=steps * recipe.BATCH)
        benchmark.report(accuracy(accelerator, model, evaluation))


def endless(loader):
    while True:
        yield from loader


@torch.inference_mode()
def accuracy(accelerator, model, evaluation):
    model.eval()
    right = 0
    for images, labels in evaluation:
        predicted, labels = accelerator.gather_for_metrics((model(images).argmax(1), labels))
        right += int((predicted == labels).sum())
    model.train()
    return right / recipe.EVAL


if __name__ == "__main__":
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    train(recipe.run(*sys.argv[1:]), accelerator)
    accelerator.end_training()
