"""The benchmarks under examples/, which train_bench does not know of."""

import re
from pathlib import Path

import pytest

import train_bench.references
from train_bench.cli.program import command
from train_bench.core import plugins
from train_bench.plan import discover

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = 200
"""Most that a benchmark of one's own should take, README and rules included."""


@pytest.fixture(params=sorted(path.parent.name for path in EXAMPLES.glob("*/config.py")))
def example(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(plugins.VARIABLE, str(EXAMPLES))
    packages = [*train_bench.references.__path__, str(EXAMPLES)]
    monkeypatch.setattr(train_bench.references, "__path__", packages)
    return request.param


@pytest.mark.full
def test_an_example_keeps_the_contract_and_is_no_part_of_train_bench(example, capsys, monkeypatch):
    assert command("check")([f"benchmark={example}"]) == 0, capsys.readouterr().out
    monkeypatch.delenv(plugins.VARIABLE)
    assert example not in discover.references()


@pytest.mark.full
def test_an_example_trains_to_its_target_on_two_ranks(example, tmp_path, capsys):
    ranks = ("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
    command("run")([f"benchmark={example}", *ranks, "runs=1", "seed=1", f"output={tmp_path / 'run'}"])
    assert "run 0 (1 of 1): finished" in capsys.readouterr().out
    assert re.search(r'"status": "success"', (tmp_path / "run" / "result_0.txt").read_text())


def test_an_example_takes_few_lines(example):
    written = [path for path in (EXAMPLES / example).rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    assert sum(len(path.read_text().splitlines()) for path in written) <= LINES
