"""What is the least loss that flux1_mini can have, and what do predictors reach that ignore prompts or are linear?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.references.configs import flux1
from tests.references.mixture_bounds import TIMES, best_velocity, linear_loss
from tests.references.one_rank import OneRank
from train_bench.references.flux1 import data, mixture
from train_bench.references.flux1.task import Task, between
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("flux1_mini").target.thresholds[0].value


@pytest.fixture(scope="module")
def evaluated(prepared: Callable[[str], Path]) -> data.Batch:
    """The evaluation set, as it is evaluated."""
    config = flux1("flux1_mini", f"data_dir={prepared('flux1')}")
    _, val, empty = data.open_samples(config)
    return data.BatchSet(config=config, stored=val, empty=empty)[list(range(len(val)))]


def loss(evaluated: data.Batch, means: np.ndarray) -> float:
    """Of the best velocity where each sample's image is one of `means`, (samples, Gaussians, numbers)."""
    _, _, latents, noise, times = evaluated
    seen = between(latents, noise, times).flatten(1).double().numpy()
    wanted = (noise - latents).flatten(1).double().numpy()
    return float(((best_velocity(seen, times.double().numpy(), means) - wanted) ** 2).mean())


def test_the_target_lies_between_the_least_possible_loss_and_that_without_prompts(
    evaluated: data.Batch,
) -> None:
    samples = len(evaluated[0])
    prompts, _ = mixture.draw(samples, "val")
    means = mixture.means().reshape(len(mixture.PROMPTS), 2, -1)
    least = loss(evaluated, means[prompts])
    ignorant = loss(
        evaluated, np.broadcast_to(means.reshape(1, -1, means.shape[2]), (samples, 16, means.shape[2]))
    )
    assert least == pytest.approx(0.6343, abs=0.0005)
    assert ignorant == pytest.approx(0.8189, abs=0.0005)
    assert least + 0.1 < TARGET < ignorant - 0.07


def test_the_target_is_below_what_linear_maps_reach() -> None:
    with_words, without = linear_loss(words=True), linear_loss(words=False)
    assert with_words == pytest.approx(without)  # a sign turns the meaning of every other word
    assert with_words == pytest.approx(1.025, abs=0.001)
    assert with_words > TARGET + 0.2


def test_no_other_velocity_is_better_than_the_best(evaluated: data.Batch) -> None:
    """It is the mean of what is left: a part of it in any direction that the noisy image tells does not help."""
    _, _, latents, noise, times = evaluated
    prompts, _ = mixture.draw(len(latents), "val")
    means = mixture.means().reshape(len(mixture.PROMPTS), 2, -1)[prompts]
    seen = between(latents, noise, times).flatten(1).double().numpy()
    wanted = (noise - latents).flatten(1).double().numpy()
    left = wanted - best_velocity(seen, times.double().numpy(), means)
    for direction in (seen, means.mean(axis=1), seen**2, np.ones_like(seen)):
        for time in TIMES:
            rows = times.numpy() == time
            slope = (left[rows] * direction[rows]).mean() / (direction[rows] ** 2).mean()
            error = (
                (left[rows] * direction[rows]).std() / (direction[rows] ** 2).mean() / left[rows].size ** 0.5
            )
            assert abs(slope) < 4 * error


def test_the_metric_is_the_expectation_of_the_references_over_its_noise(
    prepared: Callable[[str], Path],
) -> None:
    """The reference draws latents and noise of an evaluation anew each time. Of the same weights, the mean of many such
    metrics is that of ours over seeds, and ours is one of them."""
    task = Task(flux1("flux1_mini", "warm_up_steps=0", f"data_dir={prepared('flux1')}"))
    task.build(1, OneRank())
    task.open_data()
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    ours = task.evaluate().metrics["eval_loss"]
    assert task.evaluate().metrics["eval_loss"] == ours
    stored, made = task._eval.samples.stored, torch.Generator().manual_seed(1)  # type: ignore[union-attr]
    mean, logvar = (
        torch.from_numpy(
            np.stack([data._numbers(stored.part(index, number)) for index in range(len(stored))])
        )
        for number in (2, 3)
    )
    text, pooled, _, _, times = task._eval.samples[list(range(len(stored)))]  # type: ignore[union-attr]
    found = []
    for _ in range(30):
        drawn = mean + (logvar / 2).exp() * torch.randn(mean.shape, generator=made)
        latents, noise = 0.3611 * (drawn - 0.1159), torch.randn(mean.shape, generator=made)
        velocity = task.infer(between(latents, noise, times), times, text, pooled)
        found.append(float((velocity - (noise - latents)).square().mean()))
    task.close()
    assert ours == pytest.approx(np.mean(found), abs=4 * np.std(found))
    assert np.std(found) < 0.02 * ours
