"""resnet_mini in a plain loop of torch: python plain_loop.py [FOLDER SEED]. Lines marked `# new` are what Benchmark
adds or changes."""

import sys

import torch
from torch.utils.data import DataLoader

from tests.own_trainer.programs import recipe
from train_bench import Benchmark  # new
from train_bench.warm_up import without_trace  # new


def train_step(model, optimizer, images, labels, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    recipe.loss_of(model(images), labels).backward()
    optimizer.step()


@torch.inference_mode()
def accuracy(model, batches):
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches)
    model.train()
    return right / recipe.EVAL


def batches_of(dataset):
    while True:
        yield from DataLoader(dataset, recipe.BATCH, shuffle=True, drop_last=True)


def train(benchmark: Benchmark):
    benchmark.announce(**recipe.hyperparameters())  # new
    benchmark.init_start()  # new
    model = recipe.network(benchmark.seed)
    optimizer = recipe.optimizer(model)
    with without_trace(model, optimizer):  # new
        train_step(
            model, optimizer, torch.rand(recipe.BATCH, 3, 20, 20), torch.zeros(recipe.BATCH).long(), 0.1
        )  # new
    benchmark.weights_initialized(*dict(model.named_parameters()))  # new
    benchmark.init_stop()  # new
    benchmark.run_start(train_samples=recipe.TRAIN, eval_samples=recipe.EVAL)  # new
    train_set, eval_set = recipe.splits(benchmark.seed)
    evaluation = DataLoader(eval_set, recipe.CONFIG.data.eval_batch_size)
    batches, steps = batches_of(train_set), 0
    for mark in benchmark.blocks():  # new
        while steps * recipe.BATCH < mark.count:  # new
            train_step(model, optimizer, *next(batches), recipe.rate(steps))
            steps += 1
        benchmark.eval_start(samples=steps * recipe.BATCH)  # new
        benchmark.report(accuracy(model, evaluation))  # new


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(recipe.run(*sys.argv[1:]))  # new
