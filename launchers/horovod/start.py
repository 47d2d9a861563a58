"""horovodrun, on one host or on several that it reaches by SSH."""

from __future__ import annotations

import re
import sys

from train_bench.core.job import Job
from train_bench.launcher import Death, Launch
from train_bench.launchers.horovod.config import Config
from train_bench.launchers.parts.exit_codes import how_it_ended, how_it_ended_with
from train_bench.launchers.parts.threads import thread_variables
from train_bench.task import BenchmarkConfig

# horovodrun reports the rank that failed first; its shell reports signal N as 128 + N.
FAILURE = re.compile(r"^Process name: (\d+)\s*\nExit code: (\d+)", re.MULTILINE)
SHELL_SIGNALS = 128

HOST = re.compile(r"\w[\w.-]*", re.ASCII)  # horovodrun passes it to a shell


class Launcher:
    """Runs every rank below one horovodrun."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Any number of processes; several hosts have to be named."""
        if benchmark.SHARDED:
            return (
                f"launcher=horovod does not support the sharded tables of {benchmark.benchmark}; use "
                "launcher=torchrun or launcher=slurm."
            )
        if self.config.nodes < 1 or self.config.nproc_per_node < 1:
            return (
                f"launcher.nodes={self.config.nodes} and launcher.nproc_per_node={self.config.nproc_per_node} "
                f"were requested; both have to be at least 1."
            )
        wanted = {self.config.nodes} | ({0} if self.config.nodes == 1 else set())
        if len(self.config.hosts) not in wanted or len(set(self.config.hosts)) != len(self.config.hosts):
            return (
                f"launcher.nodes={self.config.nodes} needs as many different names in launcher.hosts; "
                f"it is [{','.join(self.config.hosts)}]."
            )
        for host in self.config.hosts:
            if not HOST.fullmatch(host):
                return (
                    f"launcher.hosts has {host!r}; a host name may have letters, digits, '.', '_' and '-'. Name each "
                    "host, for example launcher.hosts=[n01,n02]; its ranks are launcher.nproc_per_node."
                )
        return None

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """horovodrun with explicit hosts: else it would start as many ranks as these have slots, whatever `-np` says.
        Its cache of host checks is disabled."""
        hosts = ",".join(f"{host}:{job.nproc_per_node}" for host in self.config.hosts or ["localhost"])
        runner = (sys.executable, "-m", "horovod.runner.launch", f"--{self.config.controller.value}")
        return Launch(
            argv=(*runner, "--disable-cache", "-np", str(job.world_size), "-H", hosts, *rank_argv),
            env=thread_variables(job),
        )

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Read from horovodrun's report of the first rank that failed; without one, the tail of its own stderr."""
        reported = [(int(rank), int(code)) for rank, code in FAILURE.findall(stderr)]
        if reported:
            return tuple(
                Death(rank=rank, how=how_it_ended(SHELL_SIGNALS - code if code > SHELL_SIGNALS else code))
                for rank, code in reported
            )
        if exit_code == 0:
            return ()
        return (Death(rank=None, how=f"horovodrun itself {how_it_ended_with(exit_code, stderr)}"),)
