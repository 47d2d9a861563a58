"""Request schema: the typed configuration that Hydra composes from `conf/` and overrides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from train_bench.core.job import Device, Precision
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.task import BenchmarkConfig


@dataclass(slots=True, kw_only=True)
class SystemConfig:
    """The machine.

    submission_platform  its name in the log; default: as detected
    """

    submission_platform: str | None = None


@dataclass(slots=True, kw_only=True)
class SubmissionConfig:
    """Submitter of the result.

    submission_org       the submitting organisation
    submission_division  closed or open
    submission_status    onprem, cloud, preview or research
    """

    submission_org: str = MISSING
    submission_division: str = MISSING
    submission_status: str = MISSING


# Action of a campaign when the processes of a run die. OmegaConf reads the names of an enumeration, and
# `continue` can be spelled in this form only.
OnFailure = Enum("OnFailure", {"stop": "stop", "continue": "continue"}, type=str)


class OnViolation(str, Enum):
    """Action for a run whose partial log violates a rule irreversibly."""

    warn = "warn"
    stop = "stop"


class Energy(str, Enum):
    """Reading of the hosts' energy counters during a campaign."""

    auto = "auto"
    off = "off"


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """A request to `run`, `plan`, `rcp` or `prepare`.

    benchmark     benchmark variant to train; `train-bench list` has their names
    launcher      launcher of the ranks; `train-bench list` has their names
    system        the machine, a file of conf/system
    submission    submitter of the result, a file of conf/submission
    command       a program of your own that trains in place of the reference, with its arguments; {seed}, {run},
                  {rank}, {folder}, {log}, {job}, {data_dir} and {KEY} of hyperparameters stand for values of the run
    device        auto, cpu or cuda
    precision     fp32, tf32, bf16 or fp16
    runs          number of runs; default: as the ruleset requires. Of more, declared here before the first
                  of them, the window of consecutive runs whose score is the median makes the result
    seed          base of the runs' seeds; default: entropy of the operating system
    output        folder of the campaign; default: a new one under results/
    resume        folder of a campaign to continue; only retry_failed, on_failure, on_violation, only and
                  trust go with it
    trust         run the command of a campaign from another user or machine, with resume
    only          run numbers of a resumed campaign to run here; it is not judged then
    retry_failed  repeat the runs whose processes died instead of counting them as failed
    on_failure    stop or continue with the next run when the processes of a run die
    on_violation  warn of an irreversible rule violation in a partial log, or stop the run
    start_limit_seconds  time limit until all ranks have answered; then the run has failed
    stall_limit_seconds  time limit of a rank without a heartbeat (step or collective), or of a command without output;
                  then the run has failed. Default: 600, and no limit for a command
    stop_when     'minutes > 30' ends a run after so many minutes on its clock; it counts as not converged.
                  Only the clock is compared. Default: no limit
    checkpoint_seconds  write a checkpoint after the first evaluation that ends so many seconds after the last one, on
                  the clock; a run whose ranks die is started again from it, and is no result of the closed division
                  then. Default: none
    faults        'kill rank 0 every 60 s', '... every 60 s on average seed 7' (exponentially distributed), or host or
                  launcher in place of rank 0: fault injection, with checkpoint_seconds; no closed result
    replace_point a reference convergence point of the same benchmark and batch size may be written over
    append_point  the runs of `rcp` are added to the reference convergence point of the same benchmark and batch size;
                  any number of them
    keep_weights  write the model of each run after its clock has stopped, for `train-bench verify`
    deterministic same weights and qualities, bit by bit, for the same seed on the same machine and ranks; an
                  operator without a deterministic version aborts the run and is named
    drop_caches   drop the page caches before each run (needs root)
    data_dir      folder of the prepared data; default: the user's cache folder
    source        folder of the raw data, for `prepare`
    against       overrides of a second configuration; `run` alternates between the two and compares them
    energy        auto reads the energy counters of each host (NVML, RAPL, hwmon), or off
    energy_command  a program of your own to read instead, on each host; it prints a line for each reading,
                  '250 W' or '1200 J'
    energy_idle   idle power of a host; energy above it is reported, too: '10 s' measures it for 10 s before the
                  first run, '85 W' states it
    tracking      trackers of the campaign: wandb, tensorboard, a list of them, or none
    tracking_online  let wandb use the network; without it, it writes files for `wandb sync`
    tracking_limit_seconds  seconds for trackers to get ready and, again, to finish after the last run
    store         file for the score, for `train-bench history` (see train-bench index), or default for the one in the
                  user's data folder
    """

    benchmark: BenchmarkConfig = MISSING
    launcher: LauncherConfig = MISSING
    system: SystemConfig = MISSING
    submission: SubmissionConfig = MISSING
    command: str | None = None
    device: Device = Device.auto
    precision: Precision = Precision.fp32
    runs: int | None = None
    seed: int | None = None
    output: str | None = None
    resume: str | None = None
    trust: bool = False
    only: list[int] | None = None
    retry_failed: bool = False
    on_failure: OnFailure = OnFailure.stop
    on_violation: OnViolation = OnViolation.warn
    start_limit_seconds: float = 600.0
    stall_limit_seconds: float | None = None
    stop_when: str | None = None
    checkpoint_seconds: float | None = None
    faults: str | None = None
    replace_point: bool = False
    append_point: bool = False
    keep_weights: bool = False
    deterministic: bool = False
    drop_caches: bool = False
    data_dir: str | None = None
    source: str | None = None
    against: str | None = None
    energy: Energy = Energy.off
    energy_command: str | None = None
    energy_idle: str = "10 s"
    tracking: Any = "none"
    tracking_online: bool = False
    tracking_limit_seconds: float = 60.0
    store: str | None = None


def register() -> None:
    """Make the schemas known to Hydra: `run_schema`, and `<name>_schema` of every sibling."""
    _store(None, "run_schema", RunConfig)
    for name in discover.references():
        _store("benchmark", f"{name}_schema", discover.reference_config(name))
    for name in discover.launchers():
        _store("launcher", f"{name}_schema", discover.launcher_config(name))
    register_points()


def register_points() -> None:
    """Make the points of benchmarks known to Hydra, as variants of their benchmark."""
    for name, point in discover.points().items():
        _store("benchmark", name, {"defaults": [point.base, "_self_"], **point.values}, key=point)


_STORED: dict[tuple[str | None, str], object] = {}


def _store(group: str | None, name: str, node: Any, *, key: object = None) -> None:
    """Store a node once per process: Hydra walks through all fields of a schema. `key` is the node itself, or stands
    for one that is made anew."""
    key = node if key is None else key
    if _STORED.get((group, name)) is not key:
        ConfigStore.instance().store(group=group, name=name, node=node)
        _STORED[group, name] = key
