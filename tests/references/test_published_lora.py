"""Rates of the fine-tuning by low-rank adapters beside those of the published log of its reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import needs
from tests.references.configs import llama2_70b_lora
from tests.references.published_code import NEWEST, export
from train_bench.references.llama2_70b_lora.recipe import schedule_of

pytestmark = needs.published


def test_rates_are_those_of_the_published_log(tmp_path: Path) -> None:
    """440 steps, 14 of warm-up, base 1e-3: the log has after each step the rate of the next one."""
    folder = export("training", NEWEST, "llama2_70b_lora", tmp_path)
    text = (folder / "convergence_example.txt").read_text()
    logged = [float(rate) for rate in re.findall(r"'learning_rate': ([\d.e-]+)", text)]
    schedule = schedule_of(
        llama2_70b_lora(
            "llama2_70b_lora",
            "hyperparameters.opt_base_learning_rate=0.001",
            "hyperparameters.opt_learning_rate_training_steps=440",
            "hyperparameters.opt_learning_rate_warmup_steps=14",
        ).hyperparameters
    )
    assert len(logged) > 200
    assert [schedule(step + 1) for step in range(len(logged))] == pytest.approx(logged, rel=1e-6)
