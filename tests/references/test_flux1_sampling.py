"""Samples of flux1_mini for people to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.references.configs import flux1
from tests.references.mixture_bounds import best_velocity
from tests.references.one_rank import OneRank
from train_bench.references.flux1 import mixture, sampling
from train_bench.references.flux1.task import Task

MINI = flux1("flux1_mini")
MEANS = mixture.means().reshape(len(mixture.PROMPTS), len(mixture.FORMS), -1)
TEXT, _ = mixture.encodings(MINI.model.text_length, MINI.model.text_width, MINI.model.pooled_width)
NEAREST, LYING, DEVIATION = (
    "share whose nearest mean is one of their prompt",
    "share of bars that lie",
    "deviation from the nearest mean",
)


def best(latents: Tensor, times: Tensor, text: Tensor, _: Tensor) -> Tensor:
    """The best possible velocity: of the prompt's two Gaussians, without a prompt of all."""
    known = torch.from_numpy(TEXT).bfloat16()
    numbers = [int((known == one).all(dim=(1, 2)).nonzero()) for one in text]
    pool = [MEANS[number % 8] if number < 8 else MEANS.reshape(16, -1) for number in numbers]
    seen = latents.flatten(1).double().numpy()
    found = np.concatenate(
        [
            best_velocity(seen[row : row + 1], times[row : row + 1].double().numpy(), one[None])
            for row, one in enumerate(pool)
        ]
    )
    return torch.from_numpy(found).view(latents.shape).float()


def drawn(velocity: Any) -> dict[str, float]:
    return {name: ours for name, (ours, _) in sampling.draw_sample_sheet(MINI, velocity).measures.items()}


def test_with_the_best_velocity_samples_are_those_of_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLES_PER_PROMPT", 32)
    sheet = sampling.draw_sample_sheet(MINI, best)
    (ours, data), (lying, _), (deviation, of_data) = (
        sheet.measures[name] for name in (NEAREST, LYING, DEVIATION)
    )
    assert (ours, data) == (1.0, 1.0)
    assert lying == pytest.approx(0.5, abs=0.12)
    assert of_data == pytest.approx(mixture.VARIANCE**0.5, rel=0.03)
    assert deviation == pytest.approx(mixture.VARIANCE**0.5, rel=0.1)  # 20 steps are not quite the curve


def test_with_the_prompts_of_others_samples_are_not_those_of_their_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "SAMPLES_PER_PROMPT", 8)

    def swapped(latents: Tensor, times: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
        return best(latents, times, text.roll(8, dims=0), pooled)

    assert drawn(swapped)[NEAREST] < 0.1


def test_without_a_velocity_noise_stays_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLES_PER_PROMPT", 32)
    found = drawn(lambda latents, *_: torch.zeros_like(latents))
    assert found[NEAREST] < 0.4 and found[DEVIATION] > 1.0


def test_the_sheet_has_a_row_of_images_for_each_prompt_and_for_none() -> None:
    sheet = sampling.draw_sample_sheet(MINI, lambda latents, *_: torch.zeros_like(latents))
    assert len(sheet.rows) == len(mixture.PROMPTS) + 1
    assert [*sheet.rows][:: len(mixture.PROMPTS)] == ["positive red", "no prompt"]
    for ours, data in sheet.rows.values():
        assert ours.shape == data.shape == (8, 4, 4, 3) and ours.dtype == data.dtype == np.uint8
    red, _, _ = sheet.rows["positive red"][1].mean(axis=(0, 1, 2))
    lower, _, _ = sheet.rows["negative red"][1].mean(axis=(0, 1, 2))
    assert red > lower


def test_a_task_draws_with_its_own_weights_and_encoded_data_sets_have_no_images_to_show() -> None:
    task = Task(flux1("flux1_mini", "warm_up_steps=0"))
    task.build(1, OneRank())
    untrained = task.draw_samples()
    assert untrained is not None and untrained.measures[DEVIATION][0] > 1.0  # every velocity is 0
    shape = (
        "model.width=24",
        "model.heads=2",
        "model.axes=[4,4,4]",
        "model.double_blocks=1",
        "model.single_blocks=1",
    )
    full = Task(flux1("flux1", *shape, "warm_up_steps=0"))
    full.build(1, OneRank())
    assert full.draw_samples() is None
