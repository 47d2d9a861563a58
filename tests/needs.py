"""What some tests need beyond the development install, the reason for which they are skipped without it, and what
provides it. Where CI is set, the absence of a program or a package is a failure; data and GPUs may be absent.

A test that needs a program, a launcher or data carries the marker `needs`; with a program or a launcher it finds the
user's PATH, and else that of `tests/programs.py`. `-m needs` selects all that a machine without them skips."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests import programs
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
    "ssh-keygen": "apt install openssh-client",
    "slurm": "apt install slurm-wlm munge; make slurm-local",
    "namespaces": "apt install iproute2",
    "deepspeed": "make deepspeed",
    "horovod": "make horovod",
    "mlperf_loadgen": "pip install mlcommons-loadgen",
    "joblib": "pip install '.[joblib]'",
    "kubectl": "pip install '.[kubernetes]'",
    "kubernetes_validate": "pip install '.[kubernetes]'",
    "kubeflow_trainer_api": "pip install '.[kubernetes]'",
    "submitit": "pip install '.[submitit]'",
}
CONSISTS_OF = {
    "slurm": ("sinfo", "squeue", "sbatch", "srun", "scancel", "sacct", "scontrol"),
    "namespaces": ("ip", "unshare"),
}
"""Programs of a need, where there are several."""

OF_FIXTURES = {"chromium": "chromium", "slurm": "slurm", "two_hosts": "namespaces"}
"""Needs of fixtures, and so of every test that takes one."""

AXE = Path(os.environ.get("TRAIN_BENCH_AXE", "/nonexistent"))
"""axe.min.js of the package axe-core of npm, which finds barriers of pages."""

NO_AXE = "axe.min.js is not here (npm pack axe-core, TRAIN_BENCH_AXE)"
NO_CORPUS = "the corpus of published logs is not here (../shared/corpus or TRAIN_BENCH_CORPUS)"
NO_GPU = "there is no GPU"
NO_PUBLISHED = (
    "clones of the published references are not here (../shared/published or TRAIN_BENCH_PUBLISHED)"
)
NO_ROOT = "this is not root"

published = pytest.mark.needs(paths=[PUBLISHED], reason=NO_PUBLISHED)
corpus = pytest.mark.needs(paths=[CORPUS], reason=NO_CORPUS)
cases = pytest.mark.needs(paths=[CASES], reason="the small inputs are not here (../shared/cases)")


def clones(*names: str) -> pytest.MarkDecorator:
    """Clones among those of the published references."""
    reason = f"no clone of {' or '.join(names)} is among the published references (TRAIN_BENCH_PUBLISHED)"
    return pytest.mark.needs(paths=[PUBLISHED / name for name in names], reason=reason)


def shared(path: Path) -> pytest.MarkDecorator:
    """Data beside the checkout."""
    return pytest.mark.needs(paths=[path], reason="the shared data are not here (../shared/data)")


def package(name: str) -> None:
    """An optional package of Python."""
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is the package above it
        there = False
    if not there:
        absent(f"{name} is not installed ({PROVIDED_BY.get(name, f'pip install {name}')})")


def program(name: str) -> pytest.MarkDecorator:
    """An optional program, or what several programs are: `slurm`, `namespaces`."""
    return pytest.mark.needs(name)


def launcher(name: str) -> pytest.MarkDecorator:
    """The package of an optional launcher: `horovod`, `deepspeed`."""
    return pytest.mark.needs(name)


def launchers(values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test: those that begin with the name of an optional launcher need it."""
    return [_with_launcher(one) for one in values]


def _with_launcher(value: Any) -> Any:
    parameter = value if hasattr(value, "marks") else pytest.param(value)
    name = re.split(r"\W", str(parameter.values[0]), maxsplit=1)[0]
    if name not in programs.PACKAGES:
        return value
    return pytest.param(*parameter.values, marks=[*parameter.marks, launcher(name)])


class Declarations:
    """Plugin: tests have what they declare and nothing else, and fail for what they reach without."""

    def __init__(self, guard: programs.Guard) -> None:
        self._guard = guard

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in OF_FIXTURES:
                item.add_marker(program(OF_FIXTURES[fixture]))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        names = {name for mark in item.iter_markers("needs") for name in mark.args}
        programs_of = {one for name in names for one in CONSISTS_OF.get(name, (name,))}
        on_gpu = item.get_closest_marker("gpu") is not None
        self._guard.begin(programs_of | (programs.OPTIONAL if on_gpu else set()))
        try:
            return (yield)
        finally:
            self._guard.begin(())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for mark in item.iter_markers("needs"):
            if not all(path.exists() for path in mark.kwargs.get("paths", ())):
                pytest.skip(mark.kwargs["reason"])
            for name in mark.args:
                if name in programs.PACKAGES:
                    package(name)
                elif not all(map(shutil.which, CONSISTS_OF.get(name, (name,)))):
                    absent(f"{name} is not installed ({PROVIDED_BY.get(name, f'apt install {name}')})")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        reached = self._guard.take()
        if reached:
            first = reached[0]
            need = next((name for name, parts in CONSISTS_OF.items() if first in parts), first)
            kind = "launcher" if first in programs.PACKAGES else "program"
            said = (
                f"{item.nodeid} reaches {' and '.join(reached)}, which the README does not ask for and the test does "
                f"not declare. Mark it with needs.{kind}({need!r}) of tests/needs.py, or give it a stand-in of its own."
            )
            report.longrepr = f"{report.longreprtext}\n{said}" if report.failed else said
            report.outcome = "failed"
        return report


def namespaces(error: Exception) -> NoReturn:
    """Network namespaces, which `error` says cannot be made."""
    said = str(getattr(error, "stderr", None) or error).strip()
    absent(f"network namespaces cannot be made (needs root and iproute2): {said}")


def absent(reason: str) -> NoReturn:
    """Skip, or fail where everything has to be there."""
    if os.environ.get(REQUIRE_ALL):
        pytest.fail(f"{reason}, and CI is set")
    pytest.skip(reason)
