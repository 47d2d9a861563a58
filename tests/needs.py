"""What some tests need beyond the development install, the reason for which they are skipped without it, and what
provides it. Where CI is set, the absence of a program or a package is a failure; data and GPUs may be absent."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tests.sandbox import REQUIRE_ALL, ROOT

DATA = ROOT.parent / "shared" / "data"
CORPUS = Path(os.environ.get("TRAIN_BENCH_CORPUS", ROOT.parent / "shared" / "corpus"))
CASES = ROOT.parent / "shared" / "cases"
PUBLISHED = Path(os.environ.get("TRAIN_BENCH_PUBLISHED", ROOT.parent / "shared" / "published"))
"""A folder with clones of github.com/mlcommons/training and github.com/facebookresearch/dlrm; for some tests, also of
libraries that the references call (NVIDIA/NeMo, NVIDIA/Megatron-LM, AMD-AGI/Primus, huggingface/peft) and of
mlcommons/inference."""

PROVIDED_BY = {
    "chromium": "apt install chromium",
    "deepspeed": "make deepspeed",
    "horovod": "make horovod",
    "mlperf_loadgen": "pip install mlcommons-loadgen",
    "joblib": "pip install '.[joblib]'",
    "submitit": "pip install '.[submitit]'",
}
AXE = Path(os.environ.get("TRAIN_BENCH_AXE", "/nonexistent"))
"""axe.min.js of the package axe-core of npm, which finds barriers of pages."""

NO_AXE = "axe.min.js is not here (npm pack axe-core, TRAIN_BENCH_AXE)"
NO_CORPUS = "the corpus of published logs is not here (../shared/corpus or TRAIN_BENCH_CORPUS)"
NO_GPU = "there is no GPU"
NO_PUBLISHED = (
    "clones of the published references are not here (../shared/published or TRAIN_BENCH_PUBLISHED)"
)
NO_ROOT = "this is not root"
NO_SSH = "ssh-keygen is not installed (apt install openssh-client)"

published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason=NO_PUBLISHED)
corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=NO_CORPUS)


def shared(path: Path) -> pytest.MarkDecorator:
    """Data beside the checkout."""
    return pytest.mark.skipif(not path.exists(), reason="the shared data are not here (../shared/data)")


def package(name: str) -> None:
    """An optional package of Python."""
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is the package above it
        there = False
    if not there:
        absent(f"{name} is not installed ({PROVIDED_BY.get(name, f'pip install {name}')})")


def program(name: str) -> str:
    """An optional program: its path."""
    found = shutil.which(name)
    return found or absent(f"{name} is not installed ({PROVIDED_BY.get(name, f'apt install {name}')})")


def namespaces(error: Exception) -> NoReturn:
    """Network namespaces, which `error` says cannot be made."""
    said = str(getattr(error, "stderr", None) or error).strip()
    absent(f"network namespaces cannot be made (needs root and iproute2): {said}")


def absent(reason: str) -> NoReturn:
    """Skip, or fail where everything has to be there."""
    if os.environ.get(REQUIRE_ALL):
        pytest.fail(f"{reason}, and CI is set")
    pytest.skip(reason)
