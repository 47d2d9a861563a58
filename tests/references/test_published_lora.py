"""Fine-tuning by low-rank adapters beside the published log of its reference, and beside the library that it calls."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests import needs
from tests.references.configs import llama2_70b_lora
from tests.references.published_code import NEWEST, export, importing
from train_bench.references.llama2_70b_lora.model import Attention, add_adapters
from train_bench.references.llama2_70b_lora.recipe import schedule_of

PEFT = "e37bff64a9f20c692b4c53f4313ec1da4c05cafd"
"""huggingface/peft v0.8.2, which the reference requires."""

ABSENT = ("accelerate", "accelerate.hooks", "accelerate.utils")

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]


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


@pytest.fixture(scope="module")
def peft(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library."""
    if not (needs.PUBLISHED / "peft").is_dir():
        pytest.skip("a clone peft is not among those of the published references")
    importlib.import_module("transformers.modeling_utils")  # which looks for packages that are absent below
    folder = export("peft", PEFT, "src/peft", tmp_path_factory.mktemp("published")).parent
    with importing(folder, *ABSENT) as load:
        yield load("peft")


class Projections(nn.Module):
    """An attention alone, in place of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention(llama2_70b_lora("llama2_70b_lora_mini").model)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of both projections."""
        return self.self_attn.qkv_proj(inputs), self.self_attn.o_proj(inputs)


def both(peft: Any, command: str) -> tuple[Projections, nn.Module]:
    """The same projections with adapters of ours and of the library, as the reference's command has these."""
    value = {name: float(one) for name, one in re.findall(r"--(lora_\w+) ([\d.]+)", command)}
    targets = re.findall(r'--lora_target_modules "([\w,]+)"', command)[0].split(",")
    ours, theirs = Projections(), Projections()
    theirs.load_state_dict(ours.state_dict())
    config = peft.LoraConfig(
        r=int(value["lora_r"]),
        lora_alpha=value["lora_alpha"],
        lora_dropout=value["lora_dropout"],
        bias="none",
        target_modules=targets,
    )
    given = llama2_70b_lora("llama2_70b_lora")
    values = given.hyperparameters
    ours.requires_grad_(False)
    add_adapters(ours, rank=values.lora_rank, alpha=values.lora_alpha, dropout=given.model.lora_dropout)  # type: ignore[arg-type]
    return ours, peft.get_peft_model(theirs, config)


@pytest.mark.slow
def test_adapters_are_those_of_the_library(peft: Any, tmp_path: Path) -> None:
    """What is trained, its start, and outputs and gradients with and without dropout."""
    script = export("training", NEWEST, "llama2_70b_lora/run_llama_70B_scrolls_r16.sh", tmp_path)
    torch.manual_seed(0)
    ours, theirs = both(peft, script.read_text())
    trained = [
        {name: one for name, one in model.named_parameters() if one.requires_grad} for model in (ours, theirs)
    ]
    pairs = list(zip(*(one.values() for one in trained), strict=True))
    for name, (mine, other) in zip(trained[0], pairs, strict=True):
        assert mine.shape == other.shape
        if "lora_B" in name:
            assert not mine.any() and not other.any()
        else:
            bound = mine.shape[1] ** -0.5
            assert bound * 0.97 < float(mine.abs().max()) <= bound >= float(other.abs().max()) > bound * 0.97
            assert torch.isclose(mine.std(), other.std(), rtol=0.1)
    with torch.no_grad():
        for mine, other in pairs:
            other.copy_(mine.normal_(std=0.1))
    inputs = torch.randn(3, 5, 64)
    for training in (False, True):
        answers = []
        for model in (ours, theirs):
            model.train(training)
            model.zero_grad()
            torch.manual_seed(1)
            answers.append(torch.cat(model(inputs), dim=-1))
            answers[-1].square().mean().backward()
        assert torch.allclose(*answers, atol=1e-6)
        for mine, other in pairs:
            assert mine.grad is not None and torch.allclose(mine.grad, other.grad, atol=1e-6)
