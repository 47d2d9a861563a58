"""resnet_mini in a plain loop of torch: python plain_loop.py [FOLDER SEED]. Lines marked `# new` are what Benchmark
adds or changes."""

import sys

import torch
from torch.utils.data import DataLoader

from tests.own_trainer.programs import recipe
from train_bench import Benchmark  # new


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


def train(benchmark: Benchmark):
    benchmark.begin(**recipe.hyperparameters())  # new
    model = recipe.network(benchmark.seed)
    optimizer = recipe.optimizer(model)
    benchmark.weights_initialized(*dict(model.named_parameters()))  # new
    benchmark.init_stop()  # new
    benchmark.run_start(train_samples=recipe.TRAIN, eval_samples=recipe.EVAL)  # new
    train_set, eval_set = recipe.splits(benchmark.seed)
    training = DataLoader(train_set, recipe.BATCH, shuffle=True, drop_last=True)
    evaluation = DataLoader(eval_set, recipe.CONFIG.data.eval_batch_size)
    batches = benchmark.batches(training, lambda: accuracy(model, evaluation))  # new
    for step, (images, labels) in enumerate(batches):
        train_step(model, optimizer, images, labels, recipe.rate(step))


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(recipe.run(*sys.argv[1:]))  # new
