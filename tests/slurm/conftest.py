"""What the tests on a real Slurm share. `make slurm-local` starts one of two nodes on this machine."""

import subprocess

import pytest

from tests import needs


@pytest.fixture(scope="session", autouse=True)
def slurm():
    """Skip without two nodes of a Slurm; in CI they have to be there."""
    try:
        command = ["sinfo", "--noheader", "--Node", "--format=%N"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=300)
        nodes, reason = set(completed.stdout.split()), completed.stderr.strip().rpartition("\n")[2]
    except FileNotFoundError:
        nodes, reason = set(), "sinfo is not installed"
    except subprocess.TimeoutExpired:
        nodes, reason = set(), "sinfo does not answer"
    if len(nodes) < 2:
        text = f"there is no Slurm of two nodes: {reason or nodes} (make slurm-local)"
        needs.absent(text)
