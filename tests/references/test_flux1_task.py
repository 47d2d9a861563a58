"""The training step and the evaluation of flux1, and a step in full width."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.references.configs import flux1
from tests.references.one_rank import Averaging, OneRank, in_threads
from tests.references.tasks import mark, weights
from train_bench.references.flux1.config import Config
from train_bench.references.flux1.task import Task, between
from train_bench.rules import ruleset


@pytest.fixture
def tiny(prepared: Callable[[str], Path]) -> Config:
    """The mini benchmark with a narrow network, without warm-up."""
    config: Config = flux1(
        "flux1_mini",
        *("model.width=24", "model.heads=2", "model.axes=[4,4,4]", "warm_up_steps=0"),
        *("hyperparameters.global_batch_size=12", "hyperparameters.opt_learning_rate_warmup_steps=0"),
        f"data_dir={prepared('flux1')}",
    )
    return config


def built(config: Config, parallel: OneRank) -> Task:
    task = Task(config)
    task.build(1, parallel)
    made = torch.Generator().manual_seed(1)  # not torch's own, which threads share
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=made))
    task.open_data()
    return task


def test_the_loss_of_an_evaluation_is_the_mean_over_all_samples_on_any_number_of_ranks(tiny: Config) -> None:
    def found(parallel: OneRank) -> float:
        task = built(tiny, parallel)
        value = task.evaluate().metrics["eval_loss"]
        task.close()
        return value

    task = built(tiny, OneRank())
    samples = task._eval.samples  # type: ignore[union-attr]
    text, pooled, latents, noise, times = samples[list(range(1024))]
    with torch.no_grad():
        velocity = task.model(between(latents, noise, times), times, text, pooled)
    expected = float((velocity - (noise - latents)).double().square().mean())
    task.close()
    assert [found(OneRank()), *in_threads(3, found)] == pytest.approx([expected] * 4, rel=1e-6)


def test_two_ranks_train_as_one_does(tiny: Config) -> None:
    """Latents, noise, times and dropped prompts are those of the samples, whoever has them."""

    def trained(parallel: OneRank) -> list[torch.Tensor]:
        task = built(tiny, parallel)
        task.train_until(mark(36))
        task.close()
        return weights(task)

    alone = trained(OneRank())
    for ours in in_threads(2, trained, Averaging):
        for one, other in zip(alone, ours, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-4)


def test_samples_are_taken_in_the_order_of_their_files_again_and_again(tiny: Config) -> None:
    task = built(tiny, OneRank())
    task.train_until(mark(24))
    assert [list(batch) for batch in task.samples_taken().order] == [list(range(12)), list(range(12, 24))]
    assert task.samples_taken().epoch == 65536
    task.close()


@pytest.mark.full
def test_with_the_prompts_of_others_the_target_is_not_reached(prepared: Callable[[str], Path]) -> None:
    """In as many samples as a run has."""
    config = flux1("flux1_mini", "data.permute_labels=true", f"data_dir={prepared('flux1')}")
    target = ruleset.load("mini-1.0").benchmark("flux1_mini").target.thresholds[0].value
    task, found = Task(config), []
    task.build(1, OneRank())
    task.open_data()
    for samples in range(8192, int(config.evaluation.until) + 1, 8192):
        task.train_until(mark(samples))
        found.append(task.evaluate().metrics["eval_loss"])
    task.close()
    assert min(found) > target + 0.05, found


WIDE_STEP = """
import math, torch
from tests.references.configs import flux1
from tests.memory import peak_resident
from train_bench.references.flux1 import data
from train_bench.references.flux1.model import Flux
from train_bench.references.flux1.task import between
torch.set_num_threads(2)
config = flux1("flux1", "model.double_blocks=2", "model.single_blocks=2")
model = Flux(config.model)
changed = set()
with torch.no_grad():
    for parameter in model.parameters():  # none of them is 0, as most are at the start
        if not parameter.any():
            parameter.normal_(std=0.02)
def step(name):
    def stepped(parameter):  # at once, so that no two gradients are there together
        assert bool(torch.isfinite(parameter.grad).all()) and bool(parameter.grad.any()), name
        parameter.data.add_(parameter.grad, alpha=-0.0005)
        parameter.grad = None
        changed.add(name)
    return stepped
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(step(name))
text, pooled, latents, noise, times = data.synthetic(config, 1)
losses = []
for _ in range(2):
    times = torch.full_like(times, 0.4)
    velocity = model(between(latents, noise, times), times, text, pooled)
    loss = torch.nn.functional.mse_loss(velocity, noise - latents)
    losses.append(float(loss.detach()))
    loss.backward()
assert losses[1] < losses[0], losses
assert changed == {name for name, _ in model.named_parameters()}
assert peak_resident() < 7e9, peak_resident()
"""


@pytest.mark.full
def test_a_step_of_two_blocks_of_each_kind_in_full_width_changes_every_tensor() -> None:
    """In a process that gives its gigabytes back."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", WIDE_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
