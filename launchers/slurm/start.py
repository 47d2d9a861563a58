"""srun inside an allocation: one step per run."""

from __future__ import annotations

import importlib
import re
from typing import cast

from train_bench.core.job import Device, Job
from train_bench.launcher import Death, Launch
from train_bench.launcher import Launcher as InnerLauncher
from train_bench.launchers.parts.exit_codes import how_it_ended, how_it_ended_with
from train_bench.launchers.parts.threads import thread_variables
from train_bench.launchers.slurm import refusals
from train_bench.launchers.slurm.config import Config, ContainerRuntime, Starter
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
SIGNS = "_ - . , : = / @ + % ( ) * [ ]"
VALUE = re.compile(rf"[\w{re.escape(SIGNS.replace(' ', ''))}]+")
WORD = re.compile(r"[^\s-]\S*")
MOUNT = re.compile(r"/[^\s,:]*:/[^\s,:]*(:[\w+]+)?")
SRUN_ERROR = re.compile(r"^srun: (?:(?:error|fatal): |(?=unrecognized option))(.+)$", re.MULTILINE)


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
        for name in ("partition", "account", "time", "gres", "mem", "exclude"):
            value = getattr(config, name)
            if value is not None and not VALUE.fullmatch(value):
                return f"launcher.{name} is {value!r}; allowed are letters, digits and the characters {SIGNS}"
        reason = _refuse_words(config) or _refuse_container(config)
        if reason is not None:
            return reason
        inner = None if config.starter is Starter.srun else self._inner().refuse(benchmark)
        return inner or config.refuse_division(benchmark)

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """A step of exactly as many tasks as were planned; one task that ends badly ends the step."""
        config = self.config
        env = thread_variables(job) | {STARTER: config.starter.value}
        agent = ("-m", "train_bench.launchers.slurm.agent", *rank_argv[-2:])
        if config.starter is Starter.horovod:
            return Launch(argv=(config.python or rank_argv[0], *agent), env=env)
        of_srun = config.starter is Starter.srun
        step = self._srun(job, tasks_per_node=job.nproc_per_node if of_srun else 1)
        return Launch(
            argv=(*step, *_in_container(config, job, rank_argv[0]), *(rank_argv[1:] if of_srun else agent)),
            env=env,
        )

    def on_each_node(self, job: Job, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A step that carries out a command once on each node of a run, beside that of its ranks. It shares their
        CPUs and GPUs."""
        step = [
            "--overlap",
            f"--nodes={job.nodes}",
            f"--ntasks={job.nodes}",
            "--ntasks-per-node=1",
            "--cpus-per-task=1",
            "--kill-on-bad-exit=0",
        ]
        if self.config.gres is not None:
            step.append(f"--gres={self.config.gres}")
        return (*self._on_own_nodes(step), *argv)

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
        if config.container_image is not None and config.container_runtime is ContainerRuntime.pyxis:
            step.append(f"--container-image={config.container_image}")
            step.append(f"--container-mounts={','.join(_mounts(config, job))}")
        return self._on_own_nodes([*step, *config.srun_extra])

    def _on_own_nodes(self, step: list[str]) -> tuple[str, ...]:
        config = self.config
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
        if not said:
            return (Death(rank=None, how=f"srun itself {how_it_ended_with(exit_code, stderr)}"),)
        step = refusals.next_step(said[0])
        return (Death(rank=None, how=f"srun: {said[0]}" + (f". {step.rstrip('.')}" if step else "")),)

    def _inner(self) -> InnerLauncher:
        """The launcher that starts the ranks; its hosts are known on the nodes only (`agent.py`)."""
        name = self.config.starter.value
        launcher = importlib.import_module(f"train_bench.launchers.{name}.start").Launcher
        return cast(InnerLauncher, launcher(self.config.starter_config()))


def _refuse_words(config: Config) -> str | None:
    """Items that are no options of their program, and commands of more than one line."""
    for name, program, example in (
        ("extra", "sbatch", "--constraint=a100"),
        ("srun_extra", "srun", "--cpu-bind=cores"),
    ):
        for item in getattr(config, name):
            if not item.isprintable():
                return (
                    f"launcher.{name} has {item!r}; each item has to be one option of {program}, on one line."
                )
            if not item.startswith("-"):
                return f"launcher.{name} has {item!r}; each item has to be an option of {program}, such as {example}."
    for name in ("prolog", "epilog", "python"):
        value = getattr(config, name)
        if value is not None and not (value.strip() and value.isprintable()):
            return f"launcher.{name} is {value!r}; it has to be a command on one line."
    return None


def _refuse_container(config: Config) -> str | None:
    """Containers without an image, and steps that `horovodrun` starts itself."""
    if config.container_image is None:
        if config.container_mounts:
            return "launcher.container_mounts needs launcher.container_image=IMAGE; set it, or leave the mounts out."
    elif not WORD.fullmatch(config.container_image):
        return f"launcher.container_image is {config.container_image!r}; it has to be a word without a dash before it."
    for mount in config.container_mounts:
        if not MOUNT.fullmatch(mount):
            return (
                f"launcher.container_mounts has {mount!r}; each item has to be HOST:CONTAINER, two absolute paths "
                "without commas and blanks, such as /shared:/shared."
            )
    if config.starter is Starter.horovod and (config.container_image is not None or config.srun_extra):
        return (
            "launcher.starter=horovod starts its ranks without srun, so launcher.srun_extra and "
            "launcher.container_image have no effect; choose launcher.starter=srun or torchrun."
        )
    return None


def _in_container(config: Config, job: Job, own_python: str) -> tuple[str, ...]:
    """Interpreter of the ranks, behind the words that start it in the image. Without a container, and if none is
    named, it is that of this process."""
    if config.container_image is None:
        return (config.python or own_python,)
    python = config.python or "python"
    if config.container_runtime is ContainerRuntime.pyxis:
        return (python,)
    gpus = () if job.device is Device.cpu else ("--nv",)
    return (
        "apptainer",
        "exec",
        *gpus,
        "--bind",
        ",".join(_mounts(config, job)),
        config.container_image,
        python,
    )


def _mounts(config: Config, job: Job) -> list[str]:
    """The campaign's folder under its own path, which ranks read and write, and what the user mounts."""
    return [f"{job.folder}:{job.folder}", *config.container_mounts]


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
