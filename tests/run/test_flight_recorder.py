"""Two ranks over Gloo, one of which never joins a collective: what torch records of it, and what is made of that."""

import socket
import subprocess
import sys

import pytest

from tests.run.fakes import job
from train_bench.campaign import stalled_collective
from train_bench.core.collective_records import record_file
from train_bench.run import flight_recorder

RANK = """
import os, sys, threading, time
from pathlib import Path
from train_bench.run import flight_recorder
flight_recorder.switch_on()
import torch, torch.distributed as dist
from tests.run.fakes import job
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", rank=rank, world_size=2)
dist.all_reduce(torch.ones(3))
waiting = threading.Thread(target=lambda: dist.all_reduce(torch.ones(7, 2)), daemon=True)
if rank == 0:
    waiting.start()
    while len(dict(flight_recorder._recorders())["gloo"]) < 2:
        time.sleep(0.05)
flight_recorder.dump(job(folder, nproc_per_node=2), rank)
(folder / f"written_{rank}").touch()
while len(list(folder.glob("written_*"))) < 2:
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rank_that_never_joins_a_collective_is_named_by_what_torch_has_recorded(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    (tmp_path / "ranks" / "run_0").mkdir(parents=True)
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0]
    assert stalled_collective.sentence(job(tmp_path, nproc_per_node=2)) == (
        "rank 0 waited in collective 2 of default_pg (gloo:all_reduce of 7x2 Float); rank 1 has not joined it."
    )


def test_an_error_of_the_recorder_does_not_hide_that_of_the_rank(tmp_path, monkeypatch):
    def broken():
        raise RuntimeError("no recorder")

    monkeypatch.setattr(flight_recorder, "_recorders", broken)
    two = job(tmp_path, nproc_per_node=2)
    flight_recorder.dump(two, 0)
    assert not record_file(two, 0).exists()


def test_a_rank_alone_and_one_that_has_exchanged_nothing_leave_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "_recorders", lambda: [("gloo", [])])
    flight_recorder.dump(job(tmp_path, nproc_per_node=2), 0)
    monkeypatch.setattr(flight_recorder, "_recorders", lambda: [("gloo", [{"state": "x"}])])
    flight_recorder.dump(job(tmp_path), 0)
    assert list(tmp_path.rglob("collectives_*")) == []
