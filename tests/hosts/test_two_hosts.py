"""torchrun over two hosts, started by hand on each."""

import json

import pytest


def words(hosts, folder, *more):
    """What is typed on host 0."""
    several = ("launcher=torchrun", "launcher.nodes=2", "launcher.threads_per_rank=1", "device=cpu")
    where = (f"launcher.master_addr={hosts[0].address}", f"launcher.interface={hosts[0].interface}")
    return ("run", *several, *where, f"output={folder}", *more)


def joining(hosts, folder, *more):
    """What is typed on host 1."""
    own = ("launcher.node_rank=1", f"launcher.interface={hosts[1].interface}")
    return ("join", str(folder), *own, *more)


def both(hosts, folder, *more):
    """A campaign on both hosts, host 1 first: their order does not matter."""
    other = hosts[1].start(*joining(hosts, folder))
    first = hosts[0].start(*words(hosts, folder, *more))
    return first, other


def finished(process, seconds=240):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def test_a_campaign_of_five_runs_over_two_hosts_is_valid(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    first, other = both(two_hosts, folder, "seed=1")
    code, out, err = finished(first)
    print(out, err)
    code1, out1, err1 = finished(other)
    print(out1, err1)
    assert code == 0
    assert code1 == 0
