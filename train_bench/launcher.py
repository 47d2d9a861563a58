"""CONTRACT 2: how ranks come to life. A launcher turns a job into text; `plan/launch.py` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from train_bench.core.job import Job
from train_bench.task import BenchmarkConfig

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of every process that is started: `python -m MODULE` would else import whatever lies in the current
folder under the name of a module, for example `torch.py` in somebody else's campaign."""


@dataclass(slots=True, kw_only=True)
class LauncherConfig:
    """What every launcher can be asked; a launcher adds its own fields.

    nodes             hosts
    nproc_per_node    ranks on each host
    threads_per_rank  CPU threads of each rank; null is what OMP_NUM_THREADS says, else what the benchmark is worth
                      (`benchmark.threads_per_rank`), else the cores of the host divided among its ranks
    """

    name: str
    nodes: int = 1
    nproc_per_node: int = 1
    threads_per_rank: int | None = None

    RESTARTS: ClassVar[bool] = False
    """Whether starting a run again from its checkpoints (`checkpoint_seconds`) was tried with this launcher."""

    @property
    def world_size(self) -> int:
        """Number of ranks that are asked for."""
        return self.nodes * self.nproc_per_node

    @property
    def together(self) -> int:
        """Ranks that compute the same samples together."""
        return 1

    @property
    def data_ranks(self) -> int:
        """Parts that a batch is divided into."""
        return self.world_size // self.together

    @property
    def divides(self) -> tuple[str, ...]:
        """What all ranks together hold once: `weights`, `gradients`, `optimizer` (its state). With `copy`, a rank has
        the weights that it updates twice."""
        return ()

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Why what is asked for cannot divide the training of `benchmark` among ranks, as a sentence; None if it can.
        What a start needs, hosts and what has to be installed, is not looked at."""
        return None

    @property
    def cannot_continue(self) -> str | None:
        """Why a checkpoint would lack something without which a run cannot continue, as a sentence without its full
        stop; None if it has all."""
        return None

    @property
    def joining(self) -> tuple[str, ...]:
        """What is typed behind `train-bench join DIR`, one per further host; nothing where the launcher
        reaches every host itself."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How one run is started: a command, what it adds to the environment, and files (path -> text)
    that have to exist before."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank that ended badly: `how` is a phrase such as `killed by SIGKILL`. With no rank to name, it is a
    sentence by itself."""

    rank: int | None
    how: str

    def __str__(self) -> str:
        return self.how if self.rank is None else f"rank {self.rank} {self.how}"


class Launcher(Protocol):
    """Parent side: `launchers/<name>/start.py` has a class `Launcher` that is constructed with its own
    typed configuration. All of it is pure: nothing is started or written here.

    Rank side: `launchers/<name>/parallel.py` has a function `join(job) -> Parallel`.
    """

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Why this configuration cannot be launched for `benchmark`, as a sentence; None if it can. The
        benchmark matters where a launcher cannot serve every optimizer."""

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """The command that starts all ranks of `job`, each running `rank_argv`."""

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Who died and how, from what the command left: its exit code (negative is a signal) and its
        standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """What a batch system says of one job, or of one task of a job array. `how` continues a sentence whose
    subject is the job: `ran into its time limit`."""

    name: str
    ended: bool
    good: bool
    how: str


class Batch(Protocol):
    """Login-node side of a launcher whose runs wait in the queue of a batch system: a class `Batch` in
    `launchers/<name>/batch.py`, where there is one. Pure, as the launcher is."""

    wait: bool
    """Whether the user stays until the job has ended."""

    needs: str
    """The command without which nothing can be submitted from here."""

    def inside(self, environ: Mapping[str, str]) -> bool:
        """True if this process has its allocation already, so that runs are started from here."""

    def refuse_allocation(self, environ: Mapping[str, str]) -> str | None:
        """Why the allocation cannot hold what was planned, as a sentence; None if it can."""

    def submission(self, jobs: Sequence[Job], run_argv: tuple[str, ...]) -> Launch:
        """The command that submits `jobs` and prints the number of the batch job, which carries them out by
        `run_argv` and an option that says which."""

    def settlement(self, folder: Path, batch_job: str, settle_argv: tuple[str, ...]) -> Launch:
        """The command that submits `settle_argv`, to be run once the batch job has ended, however it did."""

    def queries(self, batch_job: str) -> tuple[tuple[str, ...], ...]:
        """Commands that tell what became of the batch job; the first that knows it is believed."""

    def tasks(self, accounting: str) -> tuple[BatchTask, ...]:
        """What one of these commands printed, read."""
