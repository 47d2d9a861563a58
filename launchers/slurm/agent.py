"""Inner launcher inside a Slurm allocation: `python -m train_bench.launchers.slurm.agent PLAN.json INDEX`.

Only here, on a node, are the rendezvous address and the allocated hosts known. srun starts one per node for
torchrun; horovodrun needs one alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from train_bench.core.job import Job, read_job
from train_bench.errors import LaunchError, TrainBenchError
from train_bench.launchers.slurm.config import Starter
from train_bench.launchers.slurm.hostlist import expand
from train_bench.launchers.slurm.rendezvous import rendezvous
from train_bench.launchers.slurm.start import FIRST_NODE, STARTER


def main() -> None:
    """Replace this process by the inner launcher."""
    job = read_job(Path(sys.argv[1]), int(sys.argv[2]))
    starter = Starter(os.environ[STARTER])
    try:
        where = _torchrun(job) if starter is Starter.torchrun else _horovod(job)
    except TrainBenchError as error:
        sys.exit(f"train-bench: {error}")
    config = importlib.import_module(f"train_bench.launchers.{starter.value}.config").Config
    launcher = importlib.import_module(f"train_bench.launchers.{starter.value}.start").Launcher
    inner_config = config(nodes=job.nodes, nproc_per_node=job.nproc_per_node, **where)
    rank = (sys.executable, "-m", job.rank_module, *sys.argv[1:])
    inner = launcher(inner_config).launch(job, rank)
    os.execvpe(inner.argv[0], inner.argv, os.environ | dict(inner.env))


def _torchrun(job: Job) -> dict[str, Any]:
    if job.nodes == 1:
        return {}
    node = int(os.environ["SLURM_NODEID"])
    host, port = rendezvous(job, first=node == 0)
    return {"master_addr": host, "master_port": port, "node_rank": node}


def _horovod(job: Job) -> dict[str, Any]:
    """The hosts of this run: those of the allocation from the first that the script names."""
    if job.nodes == 1:
        return {}
    first, listed = int(os.environ.get(FIRST_NODE, "0")), os.environ["SLURM_JOB_NODELIST"]
    hosts = expand(listed)[first : first + job.nodes]
    if len(hosts) < job.nodes:
        raise LaunchError(
            f"{job.nodes} hosts from host {first} on are required, but SLURM_JOB_NODELIST={listed} has {len(hosts)}."
        )
    return {"hosts": hosts}


if __name__ == "__main__":
    main()
