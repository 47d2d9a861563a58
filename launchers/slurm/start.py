"""srun inside an allocation: one step per run."""

from __future__ import annotations

import importlib
import re
import sys
from typing import cast

from train_bench.core.job import Job
from train_bench.launcher import Death, Launch
from train_bench.launcher import Launcher as InnerLauncher
from train_bench.launchers.parts.exit_codes import how_it_ended, how_it_ended_with
from train_bench.launchers.parts.threads import thread_variables
from train_bench.launchers.slurm.config import Config, Starter
from train_bench.task import BenchmarkConfig

STARTER = "TRAIN_BENCH_STARTER"
"""Environment variable that tells a rank what started it."""

FIRST_NODE = "TRAIN_BENCH_FIRST_NODE"
"""Environment variable with the first node of a concurrent run in the allocation, from 0."""

# srun names the tasks that failed: "srun: error: n1: tasks 0-1: Exited with exit code 1".
FAILURE = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): (.+)$", re.MULTILINE)
EXITED = re.compile(r"Exited with exit code (\d+)")
SIGNALS = {"Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Aborted": 6, "Bus error": 7}
CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO (.+?))? \*\*\*")
# Characters of partitions, accounts, times and generic resources.
SIGNS = "_ - . , : = / @ + % ( ) *"
VALUE = re.compile(rf"[\w{re.escape(SIGNS.replace(' ', ''))}]+")
SRUN_ERROR = re.compile(r"^srun: (?:error|fatal): (.+)$", re.MULTILINE)


class Launcher:
    """Runs the ranks of one run as one step of the job. For the job itself see `batch.py`."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse invalid numbers and malformed options of sbatch."""
        config = self.config
        for name in ("nodes", "nproc_per_node", "parallel"):
            if getattr(config, name) < 1:
                return f"launcher.{name} is {getattr(config, name)}; it has to be at least 1."
        if config.cpus_per_rank is not None and config.cpus_per_rank < 1:
            return f"launcher.cpus_per_rank is {config.cpus_per_rank}; it has to be at least 1."
        for name in ("partition", "account", "time", "gres"):
            value = getattr(config, name)
            if value is not None and not VALUE.fullmatch(value):
                return f"launcher.{name} is {value!r}; allowed are letters, digits and the characters {SIGNS}"
        for line in config.extra:
            if not line.isprintable():
                return f"launcher.extra has {line!r}; each item has to be one option of sbatch, on one line."
        for line in config.extra:
            if not line.startswith("-"):
                return (
                    f"launcher.extra has {line!r}; each item has to be an option of sbatch, such as "
                    "--constraint=a100."
                )
        if config.starter is not Starter.srun:
            return self._inner().refuse(benchmark)
        return None

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """A step of exactly as many tasks as were planned; one task that ends badly ends the step."""
        plan, index = rank_argv[-2:]
        env = thread_variables(job) | {STARTER: self.config.starter.value}
        agent = (sys.executable, "-m", "train_bench.launchers.slurm.agent", plan, index)
        if self.config.starter is Starter.srun:
            return Launch(argv=(*self._srun(job, tasks_per_node=job.nproc_per_node), *rank_argv), env=env)
        if self.config.starter is Starter.torchrun:
            return Launch(argv=(*self._srun(job, tasks_per_node=1), *agent), env=env)
        return Launch(argv=agent, env=env)

    def _srun(self, job: Job, *, tasks_per_node: int) -> tuple[str, ...]:
        config = self.config
        step = [
            f"--nodes={job.nodes}",
            f"--ntasks={job.nodes * tasks_per_node}",
            f"--ntasks-per-node={tasks_per_node}",
            "--kill-on-bad-exit=1",
        ]
        if config.cpus_per_rank is not None:
            step.append(f"--cpus-per-task={config.cpus_per_rank * job.nproc_per_node // tasks_per_node}")
        if config.gres is not None:
            step.append(f"--gres={config.gres}")
        if config.parallel == 1 or config.array:
            return ("srun", *step)
        # Parallel runs use disjoint nodes; the script names this run's.
        relative = f'exec srun --relative="${{{FIRST_NODE}:-0}}" "$@"'
        return ("sh", "-c", relative, "srun", *step)

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Slurm's action on the step first, then the ranks named as dead, then srun's own message. A step is also
        cancelled because one of its tasks failed; that comes last."""
        if exit_code == 0:
            return ()
        ended = CANCELLED.search(stderr)
        if ended and ended.group(1):
            return (Death(rank=None, how=f"Slurm ended the step: {ended.group(1).lower()}"),)
        named = _tasks(stderr) if self.config.starter is Starter.srun else self._inner().deaths(1, stderr)
        if any(death.rank is not None for death in named):
            return named
        if ended:
            return (Death(rank=None, how="Slurm ended the step: cancelled"),)
        said = SRUN_ERROR.findall(stderr)
        itself = f"srun itself {how_it_ended_with(exit_code, stderr)}"
        return (Death(rank=None, how=f"srun: {said[0]}" if said else itself),)

    def _inner(self) -> InnerLauncher:
        """The launcher that starts the ranks; its hosts are known on the nodes only (`agent.py`)."""
        name = self.config.starter.value
        launcher = importlib.import_module(f"train_bench.launchers.{name}.start").Launcher
        return cast(InnerLauncher, launcher(self.config.starter_config()))


def _tasks(stderr: str) -> tuple[Death, ...]:
    """Failed tasks; tasks that were merely ended with the step are not counted."""
    failed = [(rank, _how(what)) for ranks, what in FAILURE.findall(stderr) for rank in _numbers(ranks)]
    return tuple(Death(rank=rank, how=how) for rank, how in failed if how != "killed by SIGTERM")


def _how(what: str) -> str:
    exited = EXITED.match(what)
    if exited:
        return how_it_ended(int(exited.group(1)))
    number = next((number for word, number in SIGNALS.items() if what.startswith(word)), None)
    return what if number is None else how_it_ended(-number)


def _numbers(ranges: str) -> list[int]:
    """`0-2,5` -> 0, 1, 2, 5."""
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
