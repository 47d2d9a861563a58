"""torchrun on one machine."""

from __future__ import annotations

import re
import sys

from launchers._parts.exit_codes import how_it_ended
from launchers.torchrun.config import Config
from train_bench.job import Job
from train_bench.launcher import Death, Launch
from train_bench.task import BenchmarkConfig

# A failure report of torchrun names, per failed process, first its rank and then its exit code.
FAILURE = re.compile(r"^\s*rank\s*:\s*(\d+)[^\n]*\n\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)


class Launcher:
    """Runs every rank as a child of one torchrun agent."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """One machine, any number of processes."""
        if self.config.nproc_per_node < 1:
            return f"launcher.nproc_per_node is {self.config.nproc_per_node}; it has to be at least 1."
        if self.config.nodes != 1:
            return f"launcher=torchrun runs on one machine; launcher.nodes={self.config.nodes} was asked."
        return None

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """A standalone torchrun: its rendezvous takes a free port, so that campaigns do not collide.

        The interpreter of `rank_argv` is left to torchrun, which starts `-m module` itself.
        """
        agent = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1")
        return Launch(
            argv=(sys.executable, *agent, f"--nproc-per-node={job.nproc_per_node}", *rank_argv[1:]),
            env={"OMP_NUM_THREADS": str(job.threads_per_rank or 1)},
        )

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Read from the agent's failure report; where there is none, the agent itself died."""
        reported = {int(rank): int(code) for rank, code in FAILURE.findall(stderr)}
        if reported:
            return tuple(Death(rank=rank, how=how_it_ended(code)) for rank, code in reported.items())
        return (Death(rank=None, how=f"torchrun itself {how_it_ended(exit_code)}"),) if exit_code else ()
