"""Triton's kernels compute what the eager code does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests import needs
from tests.sandbox import ROOT


@pytest.mark.slow
def test_kernels_of_a_gpu_give_the_numbers_of_eager_code() -> None:
    """Loss of a transducer with its gradient, updates of LAMB and LARS, in Triton's interpreter."""
    needs.package("triton")
    said = subprocess.run(
        [sys.executable, "-m", "tests.references.triton_interpreted"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


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
