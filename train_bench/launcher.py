"""CONTRACT 2: interface of a launcher, which turns a job into text; `plan/process.py` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from train_bench.core.job import Job
from train_bench.task import BenchmarkConfig

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of every process that is started: `python -m MODULE` would else import whatever lies in the current
folder under the name of a module, for example `torch.py` in somebody else's campaign."""


@dataclass(slots=True, kw_only=True)
class LauncherConfig:
    """Configuration fields of every launcher; a launcher adds its own.

    nodes             hosts
    nproc_per_node    ranks on each host
    threads_per_rank  CPU threads of each rank; default: OMP_NUM_THREADS, else the benchmark's
                      (`benchmark.threads_per_rank`), else the cores of the rank, its own or its part of the
                      host's. A command gets it as OMP_NUM_THREADS; with neither, it chooses its threads itself
    """

    name: str
    nodes: int = 1
    nproc_per_node: int = 1
    threads_per_rank: int | None = None

    RESTARTS: ClassVar[bool] = False
    """True if starting a run again from its checkpoints (`checkpoint_seconds`) was tried with this launcher."""

    ON_RESUME: ClassVar[tuple[str, ...]] = ()
    """Fields that a resumed campaign may be given anew."""

    SHARED_MEMORY: ClassVar[str | None] = None
    """Option that limits the size of /dev/shm on each host; without a value, the plan computes it."""

    @property
    def world_size(self) -> int:
        """Requested number of ranks."""
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
    def sharing(self) -> int:
        """Ranks over which a copy of what `divides` names is sharded."""
        return self.world_size

    @property
    def divides(self) -> tuple[str, ...]:
        """Training state that is sharded over ranks: `weights`, `gradients`, `optimizer` (its state). With `copy`, a
        rank has the weights that it updates twice."""
        return ()

    @property
    def reduces_cast(self) -> bool:
        """True if ranks reduce gradients in the numerics of the job where layers compute them in these."""
        return False

    @property
    def shardings(self) -> tuple[Mapping[str, Any], ...]:
        """Values of the options by which training is sharded, one set after another; the first shards nothing."""
        return ({},)

    def whole_weights(self, benchmark: BenchmarkConfig) -> bool:
        """True if a rank that trains with a shard of the weights holds all of them at times: once they are built, or in
        evaluations."""
        return "weights" in self.divides or self.together > 1

    def refuse_division(self, benchmark: BenchmarkConfig) -> str | None:
        """Reason that this configuration cannot divide the training of `benchmark` among ranks, as a sentence; None if
        it can. Requirements of a start, hosts and installed software, are not checked."""
        return None

    def refuse_installation(self) -> str | None:
        """Missing software without which this machine cannot start ranks, as a sentence; None if it has all. A plan
        needs none of it: it may be for another machine."""
        return None

    @property
    def rank_cores(self) -> int | None:
        """Cores that a rank is given; None where the host decides."""
        return None

    @property
    def cannot_continue(self) -> str | None:
        """Reason that a run cannot continue from a checkpoint, as a sentence without its full stop; None if it can."""
        return None

    @property
    def joining(self) -> tuple[str, ...]:
        """Arguments of `train-bench join DIR`, one per further host; empty where the launcher reaches every host
        itself."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start of one run: a command, additions to the environment, and files (path -> text) that have to exist before."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Death of a rank: `how` is a phrase such as `killed by SIGKILL`. Without a rank, it is a complete sentence."""

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
        """Reason that this configuration cannot be launched for `benchmark`, on any machine, as a sentence; None if it
        can. The benchmark matters where a launcher cannot serve every optimizer."""

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """The command that starts all ranks of `job`, each running `rank_argv`."""

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """Dead ranks and their causes, from the command's exit code (negative is a signal) and its standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """Batch system's record of one job, or of one task of a job array. `how` continues a sentence whose subject is the
    job: `ran into its time limit`."""

    name: str
    ended: bool
    good: bool
    how: str


class Batch(Protocol):
    """Login-node side of a launcher whose runs wait in the queue of a batch system: a class `Batch` in
    `launchers/<name>/batch.py`, where there is one. Pure, as the launcher is."""

    wait: bool
    """True if the user stays until the job has ended."""

    needs: str
    """The command without which nothing can be submitted from here."""

    elsewhere: bool
    """True if its runs have neither the data nor the folder of this host: what they write comes back in their logs."""

    def inside(self, environ: Mapping[str, str]) -> bool:
        """True if this process is inside its allocation, so that runs are started from here."""

    def refuse_allocation(self, environ: Mapping[str, str]) -> str | None:
        """Reason that the allocation cannot hold the plan, as a sentence; None if it can."""

    def refuse_job(self, job: Job) -> str | None:
        """Reason that a run would lack what it was requested with in the queue, as a sentence; None if it would not."""

    def submission(self, jobs: Sequence[Job], run_argv: tuple[str, ...]) -> Launch:
        """The command that submits `jobs` and prints the number of the batch job, which runs them by `run_argv` and an
        option that selects one."""

    def settlement(self, folder: Path, batch_job: str, settle_argv: tuple[str, ...]) -> Launch | None:
        """The command that submits `settle_argv`, to be run once the batch job has ended, in any way; None where the
        batch system cannot."""

    def queries(self, batch_job: str) -> tuple[tuple[str, ...], ...]:
        """Commands that query the state of the batch job. The first is cheap and lists what has not ended; the others
        are asked where it lists nothing, seldom, and the first that knows an end counts."""

    def tasks(self, accounting: str) -> tuple[BatchTask, ...]:
        """Parse the output of one of these commands."""

    def explain(self, refused: str) -> str:
        """What a command of the batch system said when it refused, with the next step where it is known."""

    def cancellation(self, batch_job: str) -> str:
        """The command that a user types to end the batch job."""

    def logs(self, batch_job: str) -> Launch:
        """The command that prints what the batch job has logged; asked of one that is `elsewhere`."""

    def removal(self, batch_job: str) -> Launch:
        """The command that removes the batch job and what belongs to it; asked of one that is `elsewhere`."""
