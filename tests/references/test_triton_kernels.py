"""Triton's kernels compute what the eager code does, and compile."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import needs
from tests.sandbox import ROOT
from train_bench.references.parts import compilation, optimizers


def said_by(module: str, **variables: str) -> None:
    """Run a module of tests in a process of its own."""
    needs.package("triton")
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.references.{module}"],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_kernels_of_a_gpu_give_the_numbers_of_eager_code() -> None:
    """Loss of a transducer with its gradient, updates of LAMB and LARS, in Triton's interpreter."""
    said_by("triton_interpreted", TRITON_INTERPRET="1")


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    said_by("triton_compiled", TRITON_CACHE_DIR=str(tmp_path))


@pytest.mark.parametrize("lacking", ["a compiler", "triton"])
def test_without_what_compiles_kernels_a_gpu_takes_the_eager_operations(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]
    weights[0].grad = torch.ones(2)
    monkeypatch.setattr(optimizers, "on_gpu", lambda weights: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("CC", "cc")
    compilation.triton_builds.cache_clear()
    assert optimizers.kernel_rows(weights)
    if lacking == "triton":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    else:
        monkeypatch.delenv("CC")
        monkeypatch.setenv("PATH", "")
    compilation.triton_builds.cache_clear()
    assert not optimizers.kernel_rows(weights)
    compilation.triton_builds.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_updates_on_a_gpu_are_those_of_eager_code(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    from tests.references.triton_interpreted import updates_agree

    updates_agree(name, "cuda")


@pytest.mark.gpu
def test_lattices_on_a_gpu_are_those_of_eager_code() -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    from tests.references.triton_interpreted import batch, lattices_agree

    logits, _, *counts = (part.cuda() for part in batch(0))
    lattices_agree(*logits.log_softmax(dim=-1)[..., :2].unbind(-1), *counts)
