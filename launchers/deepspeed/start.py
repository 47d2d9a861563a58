"""DeepSpeed's own launcher, or torchrun."""

from __future__ import annotations

import os
import re
import signal
import sys
import zlib
from pathlib import Path

from train_bench.core.excerpt import last_words
from train_bench.core.job import Device, Job
from train_bench.launcher import Death, Launch
from train_bench.launchers.deepspeed.config import Config, Starter
from train_bench.launchers.parts.exit_codes import how_it_ended
from train_bench.launchers.parts.threads import thread_variables
from train_bench.launchers.torchrun.start import OF_SEVERAL_HOSTS
from train_bench.launchers.torchrun.start import Launcher as Torchrun
from train_bench.task import BenchmarkConfig

HOST = re.compile(r"(\S+)\s+slots=(\d+)")
FIRST_PORT, PORTS = 20_000, 12_000  # below the ports that Linux gives to clients


class Launcher:
    """Runs every rank below one DeepSpeed launcher, or below torchrun."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse optimizers that are not elementwise with ZeRO, and several hosts without a hostfile."""
        return self.config.refuse_division(benchmark) or self._refuse_hosts(benchmark)

    def _refuse_hosts(self, benchmark: BenchmarkConfig) -> str | None:
        config = self.config
        if config.starter is Starter.torchrun:
            if config.hostfile is not None:
                return "launcher.hostfile is for launcher.starter=deepspeed; torchrun reads none."
            return Torchrun(config).refuse(benchmark)
        for name in (*OF_SEVERAL_HOSTS, "numa_binding"):
            if getattr(config, name) != getattr(Config(), name):
                return f"launcher.{name} is for launcher.starter=torchrun; leave it out."
        if config.nodes < 1 or config.nproc_per_node < 1:
            return (
                f"launcher.nodes={config.nodes} and launcher.nproc_per_node={config.nproc_per_node} were requested; "
                f"both have to be at least 1."
            )
        if os.environ.get("CUDA_VISIBLE_DEVICES"):
            return (
                f"DeepSpeed's launcher ignores CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} "
                "and would take other GPUs; use launcher.starter=torchrun, or unset it."
            )
        if config.nodes == 1:
            if config.hostfile is None:
                return None
            return "launcher.hostfile is for several hosts; set launcher.nodes above 1 or leave it out."
        if config.hostfile is None:
            return f"launcher.nodes={config.nodes} needs launcher.hostfile=FILE with lines `NAME slots=N`."
        hostfile = Path(config.hostfile).expanduser()
        return _refuse_hostfile(hostfile, config.nodes, config.nproc_per_node)

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """Without a hostfile DeepSpeed would read one of the system's, if it found it; `/dev/null` is none.
        Its port is fixed unless given, and two campaigns may share a host."""
        if self.config.starter is Starter.torchrun:
            return Torchrun(self.config).launch(job, rank_argv)
        hostfile = Path(self.config.hostfile or os.devnull).expanduser()
        port = FIRST_PORT + zlib.crc32(f"{job.folder} {job.index}".encode()) % PORTS
        runner = (sys.executable, "-m", "deepspeed.launcher.runner", "--log_level=warning")
        where = (f"--hostfile={hostfile}", f"--num_nodes={job.nodes}", f"--num_gpus={job.nproc_per_node}")
        _, _module_flag, module, *arguments = rank_argv
        env = thread_variables(job)
        if job.device is not Device.auto:
            env["DS_ACCELERATOR"] = job.device.value
        return Launch(
            argv=(
                *runner,
                *where,
                f"--master_port={port}",
                "--no_local_rank",
                "--module",
                module,
                *arguments,
            ),
            env=env,
        )

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """DeepSpeed's launcher ends with the exit code of the first rank that failed, in eight bits, and does
        not name it."""
        if self.config.starter is Starter.torchrun:
            return Torchrun(self.config).deaths(exit_code, stderr)
        if exit_code <= 0:
            itself = f"the DeepSpeed launcher itself {how_it_ended(exit_code)}"
            return (Death(rank=None, how=itself),) if exit_code else ()
        code = exit_code - 256 if exit_code >= 256 - signal.NSIG else exit_code
        said = last_words(stderr) if code > 0 else ""
        how = f"{how_it_ended(code)} below the DeepSpeed launcher{f': {said}' if said else ''}"
        return (Death(rank=None, how=how),)


def _refuse_hostfile(path: Path, nodes: int, slots: int) -> str | None:
    """Refuse a missing or incomplete hostfile: DeepSpeed would continue with one host without the file, and with fewer
    ranks where slots are missing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return f"launcher.hostfile={path} cannot be read: {error}."
    hosts = {}
    for line in (line.strip() for line in lines):
        if line and not line.startswith("#"):
            match = HOST.match(line)
            if match is None:
                return f"launcher.hostfile={path} has the line '{line}'; every line has to be `NAME slots=N`."
            if match.group(1) in hosts:
                return f"launcher.hostfile={path} names {match.group(1)} twice."
            hosts[match.group(1)] = int(match.group(2))
    short = [name for name, places in list(hosts.items())[:nodes] if places < slots]
    if len(hosts) < nodes or short:
        return (
            f"launcher.hostfile={path} offers {', '.join(f'{n} slots={s}' for n, s in hosts.items()) or 'nothing'}; "
            f"{nodes} hosts with {slots} slots each are needed."
        )
    return None
