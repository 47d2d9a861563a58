"""Job: one timed run, complete and decided."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.progress import EvalSchedule, Unit
from train_bench.quality import Target


class Device(str, Enum):
    """Device of the tensors. `auto` is a GPU where torch finds one, else the CPU. Members are spelled as users spell
    them, because OmegaConf reads the names of an enumeration."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Precision(str, Enum):
    """Numerics of the forward and backward pass. Master weights and optimizer state stay fp32."""

    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"

    def prefers_channels_last(self, device_type: str) -> bool:
        """True if convolutions are faster on images in `channels_last`: on CPUs, and on GPUs with Tensor Cores; in fp32
        an H100 is up to 15 % faster on contiguous images."""
        return device_type != "cuda" or self is not Precision.fp32


GRACE_SECONDS = 30.0
"""Time that ranks have for a checkpoint when they are warned of their end, if none was measured."""

PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")
"""Placeholder in a word of a command for a value of its run: `{seed}`; `{{` and `}}` are braces."""

RANK_MODULES = {
    "train": "train_bench.run.rank",
    "verify": "train_bench.run.verify",
    "profile": "train_bench.profile.rank",
    "record": "train_bench.equivalence.record",
    "serve": "train_bench.serving.rank",
}
"""Module that a rank starts as, `python -m MODULE PLAN.json INDEX`, by the `work` of its job."""

WEIGHTS = "weights"
"""The folder of a campaign that holds the weights of its runs, where they are kept."""

KEPT_WEIGHTS = "kept_weights"
"""The key under which a log says which files those are, with the sha256 of each."""

EVALUATED = "quality.json"
"""File of ranks that verify, in their folder: the metrics that the weights give."""

OF_A_RUN = ("seed", "run", "rank", "folder", "log", "job", "data_dir")
"""Placeholders for values of the run in a command, besides the keys of hyperparameters."""


INTERPRETERS = ("python", "sh", "bash", "dash", "perl", "ruby", "Rscript", "julia", "node", "env")
"""Programs of a system that run another one."""

HANDED = "handed"
"""Placeholder in the command of an evaluator: a copy of the file that the program hands over."""

REFERENCE = "reference:"
"""Beginning of the only word of an evaluator that is the evaluation of a reference, before its name in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A user's own program that trains in place of a reference: its words as typed, and its working directory."""

    argv: tuple[str, ...]
    cwd: str

    def places(self) -> Iterator[str]:
        """Placeholders for values of a run."""
        for word in self.argv:
            yield from filter(None, PLACE.findall(word))

    @property
    def reference(self) -> str | None:
        """Benchmark whose reference evaluates; None where the words are those of a program."""
        return self.argv[0].removeprefix(REFERENCE) if self.argv[0].startswith(REFERENCE) else None

    def named_files(self) -> list[Path]:
        """Files and folders that its words name, without an interpreter (`python3.11`, `bash`) at their beginning."""
        first = self.argv[0]
        runs_another = "/" not in first or Path(first).name.rstrip(".0123456789") in INTERPRETERS
        found = []
        for word in self.argv[1:] if runs_another else self.argv:
            for name in (word, word.partition("=")[2]):
                path = Path(self.cwd, name)
                if name and not PLACE.search(name) and "\0" not in name and path.exists():
                    found.append(path.resolve())
        return list(dict.fromkeys(found))

    def filled(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The words of one run. Values other than text are spelled as JSON; a placeholder without a value stays."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return found[0][0]
            due = values.get(name, found[0])
            return due if isinstance(due, str) else json.dumps(due, separators=(",", ":"))

        return tuple(PLACE.sub(value, word) for word in self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Input of the processes of one run. It contains neither the rules nor the scoring.

    `benchmark` is the name that the log gives (`resnet_mini`), `reference` the folder of its code (`resnet`). `config`
    and `launcher_config` hold the reference's and the launcher's own configuration as plain data; the `hyperparameters`
    of the first are logged one by one under their own names. `announcement` holds further values to log before the
    clock, by mllog key. `start_limit_seconds` is how long it may take from the command until all ranks have answered,
    `stall_limit_seconds` how long a rank may go without a heartbeat afterwards; None is no limit. `reference_folder`
    and `launcher_folder` are the folders of their code if that is in no package. With a `command`, its program trains,
    and not the reference. `stop_when` is the budget of the run as requested (`minutes > 30`). With
    `keep_weights` they are written once the clock has stopped; `deterministic` ranks use no operator whose result
    varies. `work` is what the ranks do, a name of `RANK_MODULES`: anything but "train" is no run of a campaign, and
    `work_options` are for it alone. With `checkpoint_seconds`, ranks write checkpoints, and a run whose ranks die is
    started again from the last one; `faults` are the injected faults, as requested. `drop_caches_command` is the
    program that drops the caches of a host, as typed; None: the rank does it, as root.
    `python` is the interpreter of the ranks; None is that of the launching process. `evaluator` is the program that
    measures the quality of what a `command` hands over, whose time is left out of the score with `evaluator_off_clock`.
    `grace_seconds` is how long before their end ranks that write checkpoints are warned of it. With `node_test`, ranks
    test their devices and an all-reduce before the clock; None: those on GPUs do.
    """

    benchmark: str
    reference: str
    launcher: str
    launcher_config: Mapping[str, Any]
    index: int
    seed: int
    nodes: int
    nproc_per_node: int
    threads_per_rank: int | None
    device: Device
    precision: Precision
    drop_caches: bool
    start_limit_seconds: float
    stall_limit_seconds: float | None
    config: Mapping[str, Any]
    announcement: Mapping[str, Any]
    target: Target
    unit: Unit
    schedule: EvalSchedule
    folder: Path
    reference_folder: str | None = None
    launcher_folder: str | None = None
    command: Command | None = None
    stop_when: str | None = None
    keep_weights: bool = False
    deterministic: bool = False
    work: str = "train"
    work_options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_seconds: float | None = None
    faults: str | None = None
    drop_caches_command: str | None = None
    python: str | None = None
    evaluator: Command | None = None
    evaluator_off_clock: bool = False
    grace_seconds: float = GRACE_SECONDS
    node_test: bool | None = None

    def numbered(self, total: int) -> str:
        """`run 0 (1 of 5)`: its number, as files and tables have it, and its place among all."""
        return f"run {self.index} ({self.index + 1} of {total})"

    @property
    def rank_module(self) -> str:
        """Entry point of each rank, `python -m MODULE PLAN.json INDEX`."""
        return RANK_MODULES[self.work] if self.command is None else "train_bench.own_trainer.command"

    @property
    def world_size(self) -> int:
        """Number of ranks that must answer."""
        return self.nodes * self.nproc_per_node

    @property
    def result_file(self) -> Path:
        """The log of this run, once the run has ended."""
        return self.folder / f"result_{self.index}.txt"

    @property
    def partial_log(self) -> Path:
        """The partial log of this run while it grows."""
        return self.folder / f"result_{self.index}.txt.part"

    @property
    def ranks_folder(self) -> Path:
        """Standard output, standard error and last state of every rank of this run."""
        return self.folder / "ranks" / f"run_{self.index}"

    @property
    def samples_file(self) -> Path:
        """Samples that a generative model has drawn after this run; judged by nothing."""
        return samples_file(self.folder, self.index)

    @property
    def checkpoints_folder(self) -> Path:
        """Checkpoints for restarts of this run, while it goes on."""
        return self.folder / "checkpoints" / f"run_{self.index}"


CHECKPOINT = "latest.json"
"""File of a run's folder of checkpoints that names the complete one."""

LARGEST_SAMPLES_SIDE = 256
"""Largest number of images of a label, of their rows and of their columns, in the file of drawn samples."""

LARGEST_SAMPLES_BYTES = 4 * 2**20
"""Size limit of the file of drawn samples."""


def samples_file(campaign: Path, index: int) -> Path:
    """File of the samples that a generative model has drawn after a run, in the folder of its campaign."""
    return campaign / "ranks" / f"run_{index}" / "samples.json"


def exit_file(ranks_folder: Path) -> Path:
    """Exit record of the processes of a run."""
    return ranks_folder / "exit.json"


DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Environment that ranks of a deterministic job give themselves."""

OF_ONE_JOB = ("index", "seed")
"""Fields in which the jobs of a plan differ."""

RANK_CORES = "rank_cores"
"""The key under which a log and `system.json` have the cores, threads and loader processes of rank 0."""

UNEQUAL_HARDWARE = "unequal_hardware"
"""The key under which a log and `system.json` have sentences on hardware that differs among ranks, if any does."""

NODE_TEST = "node_test"
"""The key under which `system.json` has the figures of the node test before the first run, if there was one."""

BATCH_JOB = "batch_job"
"""The key under which a log and `system.json` have the job of the batch system that a run was a part of."""

PLAN_DIGEST = "plan_digest"
"""The key under which a log has the digest of the plan that its run was given."""


def plan_digest(plan: Mapping[str, Any]) -> str:
    """sha256 of the content of `plan.json`, independent of its formatting."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def jobs_of(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs of a `plan.json`, each with the fields `shared` by all and its own. The file is untrusted: entries that
    are no objects are left out."""
    shared, jobs = plan.get("shared"), plan.get("jobs")
    of_all = shared if isinstance(shared, dict) else {}
    return [of_all | job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def read_job(plan: Path, index: int) -> Job:
    """The job with this `index` in `plan.json`, in the folder where the plan is now."""
    import cattrs  # deferred: `train-bench list` imports this file and needs no plan

    jobs = {job["index"]: job for job in jobs_of(files.read_json(plan))}
    return cattrs.structure(jobs[index] | {"folder": plan.resolve().parent}, Job)
