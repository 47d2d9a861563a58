"""Rendezvous of the ranks of one run: host and port in a file of the run's folder. An allocation does not reveal the
first node of a step, and parallel runs need ports of their own."""

from __future__ import annotations

import socket
import time

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import LaunchError

POLL_SECONDS = 0.1


def rendezvous(job: Job, *, first: bool) -> tuple[str, int]:
    """Name and free port of the host of rank 0. Rank 0 writes them, the others wait for the file; the folder is new in
    every run, so nobody reads those of an earlier one.

    Raises `LaunchError` when rank 0 does not write them within the job's start limit.
    """
    path = job.ranks_folder / "rendezvous.json"
    if first:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        files.write_json(path, {"host": socket.gethostname(), "port": port})
    deadline = time.monotonic() + job.start_limit_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise LaunchError(
                f"Rank 0 published no rendezvous address within {job.start_limit_seconds:g} s ({path}); "
                "the campaign's folder has to be visible to all nodes."
            )
        time.sleep(POLL_SECONDS)
    address = files.read_json(path)
    return str(address["host"]), int(address["port"])
