"""Ranks that share the weights of a decoder in every dimension of a mesh, started by torchrun on one host and on two
that this one pretends to be: they reach the log perplexity of one rank."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import train_bench, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

SHORT = (
    *("benchmark=llama31_8b_mini", "benchmark.evaluation.until=1024", "runs=1", "seed=1"),
    "launcher.threads_per_rank=1",
)
PAIRS = ("launcher.nproc_per_node=4", "launcher.shard=fsdp", "launcher.tensor_parallel=2")
COPIES = ("launcher.nodes=2", "launcher.nproc_per_node=2", "launcher.shard=hsdp")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prepared once, by the first campaign that needs them."""
    return f"data_dir={tmp_path_factory.mktemp('data')}"


@pytest.fixture(scope="module")
def alone(data: str, tmp_path_factory: pytest.TempPathFactory) -> float:
    """What one rank reaches."""
    folder = tmp_path_factory.mktemp("alone") / "campaign"
    train_bench("run", *SHORT, data, f"output={folder}")
    return reached(folder, 1)


def reached(folder: Path, ranks: int) -> float:
    """Log perplexity at the end of the only run."""
    score = json.loads((folder / "score.json").read_text())
    assert (score["runs"][0]["status"], score["world_size"]) == ("aborted", ranks)
    lines = [line.removeprefix(":::MLLOG ") for line in (folder / "result_0.txt").read_text().splitlines()]
    values = [event["value"] for event in map(json.loads, lines) if event["key"] == "eval_accuracy"]
    return float(values[-1])


def test_pairs_that_divide_matrices_share_them_with_each_other(
    data: str, alone: float, tmp_path: Path
) -> None:
    folder = tmp_path / "campaign"
    answer = train_bench("run", *SHORT, data, "launcher=torchrun", *PAIRS, f"output={folder}")
    assert answer.returncode == 1, answer.stderr
    assert reached(folder, 4) == pytest.approx(alone, rel=1e-4)


def test_copies_on_two_hosts_are_averaged(data: str, alone: float, tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ("launcher=torchrun", "launcher.master_addr=127.0.0.1", f"launcher.master_port={port}")
    words = ("run", *SHORT, data, *place, *COPIES, f"output={folder}")
    first = subprocess.Popen([sys.executable, "-m", "train_bench", *words], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (folder / "plan.json").exists() or first.poll() is not None)
        other = train_bench("join", str(folder), "launcher.node_rank=1", timeout=600)
        _, said = first.communicate(timeout=600)
    finally:
        first.kill()
    assert first.returncode == 1, (said, other.stderr)
    assert reached(folder, 4) == pytest.approx(alone, rel=1e-4)
