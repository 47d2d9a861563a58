"""torchrun: one agent per host, one process per rank."""

from __future__ import annotations

import os
import re

from train_bench.core.address import refuse_address
from train_bench.core.job import Job
from train_bench.launcher import Death, Launch
from train_bench.launchers.parts.exit_codes import how_it_ended, how_it_ended_with
from train_bench.launchers.parts.threads import thread_variables
from train_bench.launchers.torchrun.config import Config, Rendezvous
from train_bench.task import BenchmarkConfig

# torchrun's failure report lists, per failed process, its rank, its exit code and its PID; the first one to fail comes
# last. Before that, the agent names each process that it ends because another one has failed.
FAILURE = re.compile(r"^\s*rank\s*:\s*(\d+)[^\n]*\n\s*exitcode\s*:\s*(-?\d+) \(pid: (\d+)\)", re.MULTILINE)
CLOSED = re.compile(r"Sending process (\d+) closing signal")

OF_SEVERAL_HOSTS = ("rendezvous", "master_addr", "master_port", "node_rank", "interface", "local_addr")


class Launcher:
    """Runs the ranks of this host as children of one torchrun agent."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse fields that contradict each other or have no effect on a single host."""
        config = self.config
        for name in ("nodes", "nproc_per_node"):
            if getattr(config, name) < 1:
                return f"launcher.{name} is {getattr(config, name)}; it has to be at least 1."
        return config.refuse_division(benchmark) or self._refuse_hosts()

    def _refuse_hosts(self) -> str | None:
        config = self.config
        if config.nodes == 1:
            return self._refuse_several_hosts()
        if config.master_addr is None:
            return (
                f"launcher.nodes={config.nodes} needs launcher.master_addr, the address of this host that the "
                f"others can reach."
            )
        refused = refuse_address("launcher.master_addr", config.master_addr, "launcher.master_port")
        if refused is not None:
            return refused
        if config.node_rank != 0:
            return (
                f"launcher.node_rank={config.node_rank} was requested, but a campaign is begun on host 0; on the "
                f"others, type train-bench join DIR launcher.node_rank={config.node_rank}."
            )
        if not 1 <= config.master_port <= 65535:
            return f"launcher.master_port is {config.master_port}; allowed are 1 to 65535."
        if config.local_addr is not None:
            return (
                "launcher.local_addr is for train-bench join; host 0 is reached under launcher.master_addr."
            )
        return None

    def _refuse_several_hosts(self) -> str | None:
        for name in OF_SEVERAL_HOSTS:
            if getattr(self.config, name) != getattr(Config(), name):
                return f"launcher.{name} is for several hosts; set launcher.nodes above 1 or leave it out."
        return None

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """The agent of this host, by the interpreter of `rank_argv`; it starts `-m module` itself. It has no folder for
        logs, which would stay in the system's temporary folder: what ranks write is read from their streams."""
        config = self.config
        env = thread_variables(job)
        if config.interface is not None:
            env |= {"GLOO_SOCKET_IFNAME": config.interface, "NCCL_SOCKET_IFNAME": config.interface}
        agent = (
            *(rank_argv[0], "-m", "torch.distributed.run"),
            *self._rendezvous(job),
            f"--log-dir={os.devnull}",
            f"--nproc-per-node={job.nproc_per_node}",
            *([] if config.numa_binding is None else [f"--numa-binding={config.numa_binding.value}"]),
        )
        return Launch(argv=(*agent, *rank_argv[1:]), env=env)

    def _rendezvous(self, job: Job) -> tuple[str, ...]:
        """Rendezvous: on one host a free port, so that campaigns do not collide. On several, the agents wait for each
        other up to the start limit."""
        config = self.config
        if config.nodes == 1:
            return ("--standalone", "--nnodes=1")
        common = (f"--nnodes={config.nodes}", f"--rdzv-backend={config.rendezvous.value}")
        endpoint = f"--rdzv-endpoint={config.master_addr}:{config.master_port}"
        patience = round(job.start_limit_seconds)
        if config.rendezvous is Rendezvous.static:
            rank = f"--node-rank={config.node_rank}"
            return (*common, endpoint, rank, f"--rdzv-conf=timeout={patience}")
        # torchrun guesses from names and addresses which host serves the rendezvous; here it is known.
        is_host = int(config.node_rank == 0)
        waiting = f"--rdzv-conf=is_host={is_host},join_timeout={patience}"
        name = f"--rdzv-id={job.folder.name}_{job.index}"
        address = config.master_addr if is_host else config.local_addr
        return (*common, endpoint, name, waiting, *((f"--local-addr={address}",) if address else ()))

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Read from the agent's failure report, the first failure first, without the ranks that the agent killed after
        it; without a report, the agent itself died."""
        closed = CLOSED.findall(stderr)
        reported = FAILURE.findall(stderr)[::-1]
        own = [failure for failure in reported if int(failure[1]) > 0 or failure[2] not in closed]
        if reported:
            return tuple(
                Death(rank=int(rank), how=how_it_ended(int(code))) for rank, code, _ in own or reported
            )
        how = f"torchrun itself {how_it_ended_with(exit_code, stderr)}"
        return (Death(rank=None, how=how),) if exit_code else ()
