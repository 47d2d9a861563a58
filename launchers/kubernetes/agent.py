"""torchrun inside a pod: `python -m train_bench.launchers.kubernetes.agent PLAN.json INDEX`. Only in the pod are its
number and the address of host 0 known."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from train_bench.core.job import read_job
from train_bench.core.pod_variables import node_rank
from train_bench.launchers.torchrun.config import Config
from train_bench.launchers.torchrun.start import Launcher


def main() -> None:
    """Replace this process by torchrun."""
    job = read_job(Path(sys.argv[1]), int(sys.argv[2]))
    where = {}
    if job.nodes > 1:
        where = {
            "master_addr": os.environ["MASTER_ADDR"],
            "master_port": job.launcher_config["master_port"],
            "node_rank": node_rank(os.environ) or 0,
        }
    config = Config(nodes=job.nodes, nproc_per_node=job.nproc_per_node, **where)
    inner = Launcher(config).launch(job, (sys.executable, "-m", job.rank_module, *sys.argv[1:]))
    os.execvpe(inner.argv[0], inner.argv, os.environ | dict(inner.env))


if __name__ == "__main__":
    main()
