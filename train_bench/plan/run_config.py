"""Request schema: the typed configuration that Hydra composes from `conf/` and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from train_bench.core.job import Device, Precision
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.plan.option import Traits, option
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


CAMPAIGNS = ("run", "rcp")
"""Verbs that run a campaign."""


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """A request to a verb that composes a configuration. An option is defined here and nowhere else: the help page,
    docs/options.md, completion, refusals, and what the plan records follow from its field."""

    benchmark: BenchmarkConfig = option(
        MISSING, "benchmark variant to train; `train-bench list` has their names", in_jobs=True
    )
    launcher: LauncherConfig = option(
        MISSING, "launcher of the ranks; `train-bench list` has their names", in_jobs=True
    )
    system: SystemConfig = option(MISSING, "the machine, a file of conf/system", in_jobs=True)
    submission: SubmissionConfig = option(
        MISSING, "submitter of the result, a file of conf/submission", in_jobs=True
    )
    command: str | None = option(
        None,
        "a program of your own that trains in place of the reference, with its arguments; {seed}, {run}, {rank}, "
        "{folder}, {log}, {job}, {data_dir} and {KEY} of hyperparameters stand for values of the run",
        verbs=("run", "plan", "rcp", "forecast"),
        in_jobs=True,
        program=True,
    )
    python: str | None = option(
        None,
        "interpreter of the ranks, of an environment with this train_bench and other versions of torch or numpy, for "
        "example against='python=/venv/bin/python'; default: the one that runs train-bench",
        verbs=("run", "plan"),
        in_jobs=True,
        program=True,
    )
    evaluator: str | None = option(
        None,
        "(command) a program that measures the quality of the file that yours hands over, {handed}, in a process of "
        "its own, or reference:NAME, the evaluation of the reference; yours cannot read the files that its words name, "
        "or the evaluation set, where the system has user namespaces",
        verbs=("run", "plan"),
        in_jobs=True,
        program=True,
    )
    evaluator_off_clock: bool = option(
        False,
        "(evaluator) leave its time out of the score, in mini rounds alone; without it, it is part of the result, as "
        "evaluations are by the rules of MLPerf",
        verbs=("run", "plan"),
        in_jobs=True,
    )
    device: Device = option(
        Device.auto,
        "auto, cpu or cuda: NCCL on GPUs, Gloo on CPUs; auto takes a GPU if there is one",
        in_jobs=True,
    )
    precision: Precision = option(
        Precision.fp32,
        "fp32, tf32, bf16 or fp16: precision of forward and backward; weights stay fp32",
        in_jobs=True,
    )
    memory_gb: float | None = option(
        None,
        "memory of the device of a rank, a GB being 10^9 bytes; what cannot fit it is refused. Default: that of the "
        "GPUs of this host, where all ranks are on it",
    )
    runs: int | None = option(
        None,
        "number of runs; default: as the ruleset requires. With fewer the score is incomplete; of more, declared here "
        "before the first of them, the window of consecutive runs whose score is the median makes the result",
    )
    seed: int | None = option(None, "base of the runs' seeds; default: entropy of the operating system")
    output: str | None = option(None, "folder of the campaign; default: a new one under results/")
    resume: str | None = option(
        None,
        "folder or number of a campaign to continue by its plan, or latest",
        verbs=CAMPAIGNS,
        on_resume=True,
    )
    trust: bool = option(
        False,
        "allow the commands, ranks and hosts of a campaign from another user or machine, with resume",
        verbs=CAMPAIGNS,
        on_resume=True,
    )
    only: list[int] | None = option(
        None,
        "run numbers to run here; the campaign is not judged then, and resume continues it",
        verbs=CAMPAIGNS,
        on_resume=True,
    )
    retry_failed: bool = option(
        False, "repeat the runs whose processes died instead of counting them as failed", on_resume=True
    )
    on_failure: OnFailure = option(
        OnFailure.stop,
        "stop, or continue with the next run, when the processes of a run die; the run counts as failed either way",
        on_resume=True,
    )
    on_violation: OnViolation = option(
        OnViolation.warn,
        "warn of an irreversible rule violation in a partial log, or stop the run",
        on_resume=True,
    )
    start_limit_seconds: float = option(
        600.0, "time limit until all ranks have answered; then the run has failed"
    )
    stall_limit_seconds: float | None = option(
        None,
        "time limit of a rank without a heartbeat (step or collective), or of a command without output; then the run "
        "has failed. Default: 600, and 14400 for a command",
    )
    max_minutes: float | None = option(
        None,
        "time limit of a run in minutes of its clock; it counts as not converged then, and the score says so. "
        "Default: no limit",
        in_jobs=True,
    )
    checkpoint_seconds: float | None = option(
        None,
        "write a checkpoint after the first evaluation that ends so many seconds after the last one, on the clock; a "
        "run whose ranks die is started again from it, and then does not count in the closed division. Default: none",
    )
    grace_seconds: float | None = option(
        None,
        "(checkpoint_seconds) time between a warning (SIGTERM, SIGUSR1) and the end of the ranks, for a checkpoint "
        "after the step that they are in; launcher=slurm asks for the warning so long before. Default: 30, or twice "
        "the mean time of a checkpoint in the latest campaign like it in the same folder, if that is longer",
        in_jobs=True,
    )
    node_test: bool | None = option(
        None,
        "matrix products of all ranks at once and an all-reduce before the clock of each run, about two seconds: "
        "figures in system.json, and a warning of slow ranks. Default: on GPUs",
        in_jobs=True,
    )
    inject_faults: str | None = option(
        None,
        "'kill rank 0 every 60 s', '... every 60 s on average seed 7' (exponentially distributed), or host or launcher "
        "in place of rank 0: fault injection, with checkpoint_seconds; no closed result",
        in_jobs=True,
        quoted=True,
    )
    replace_point: bool = option(
        False,
        "overwrite the reference convergence point of the same benchmark and batch size",
        verbs=("rcp",),
        on_resume=True,
    )
    append_point: bool = option(
        False,
        "add the runs, any number of them, to the reference convergence point of the same benchmark and batch size",
        verbs=("rcp",),
        on_resume=True,
    )
    keep_weights: bool = option(
        False,
        "write the model of each run after its clock has stopped, for `train-bench verify`",
        in_jobs=True,
    )
    deterministic: bool = option(
        False,
        "same weights and qualities, bit by bit, for the same seed on the same machine and ranks; an operator without "
        "a deterministic version aborts the run and is named",
        in_jobs=True,
    )
    drop_caches: bool = option(
        False,
        "drop the page caches before each run; needs root or drop_caches_command, and official rounds require it",
        in_jobs=True,
    )
    drop_caches_command: str | None = option(
        None,
        "(drop_caches) the program that drops the page caches of a host, for those who are not root: "
        "'sudo -n /usr/local/sbin/drop-caches'; exit code 0 says that they are dropped",
        in_jobs=True,
        program=True,
    )
    data_dir: str | None = option(None, "folder of the prepared data; default: the user's cache folder")
    source: str | None = option(None, "folder of the raw data", verbs=("prepare",))
    against: str | None = option(
        None,
        "overrides of a second configuration; `run` alternates between the two and compares them",
        verbs=("run", "plan"),
        quoted=True,
    )
    energy: Energy = option(
        Energy.off, "auto reads the energy counters of each host (NVML, RAPL, hwmon), or off"
    )
    energy_command: str | None = option(
        None,
        "a program of your own to read instead, on each host; it prints a line for each reading, '250 W' or '1200 J'",
        program=True,
    )
    energy_idle: str = option(
        "10 s",
        "idle power of a host; energy above it is reported, too: '10 s' measures it for 10 s before the first run, "
        "'85 W' states it",
        quoted=True,
    )
    tracking: Any = option("none", "trackers of the campaign: wandb, tensorboard, a list of them, or none")
    tracking_online: bool = option(
        False, "let wandb use the network; without it, it writes files for `wandb sync`"
    )
    tracking_limit_seconds: float = option(
        60.0, "seconds for trackers to get ready and, again, to finish after the last run"
    )
    store: str | None = option(
        None,
        "file for the score, for `train-bench history` (see train-bench index), or default for the one in the user's "
        "data folder",
        on_resume=True,
    )


TRAITS: Mapping[str, Traits] = {one.name: one.metadata["traits"] for one in fields(RunConfig)}
"""Traits of each option of `RunConfig`."""


def register() -> None:
    """Make the schemas known to Hydra: `run_schema`, and `<name>_schema` of every sibling, and the variants
    that are no files of Hydra's: those of benchmarks without code, and points."""
    store = ConfigStore.instance()
    vars(store)["__deepcopy__"] = partial(_same, store)
    _forget_variants()
    _store(None, "run_schema", RunConfig)
    for name in discover.references():
        _store("benchmark", f"{name}_schema", discover.reference_config(name))
    for name, content in discover.stated_variants().items():
        _store("benchmark", name, dict(content), key=content)
    for name in discover.launchers():
        _store("launcher", f"{name}_schema", discover.launcher_config(name))
    register_points()


def register_points() -> None:
    """Make the points of benchmarks known to Hydra, as variants of their benchmark."""
    for name, point in discover.points().items():
        _store("benchmark", name, {"defaults": [point.base, "_self_"], **point.values}, key=point)


def _same(store: ConfigStore, _memo: dict[int, Any]) -> ConfigStore:
    """The store itself for a copy of it. Hydra makes one each time it composes, which takes a quarter of the time or
    more, and then copies each node that it takes from it."""
    return store


_STORED: dict[tuple[str | None, str], object] = {}


def _forget_variants() -> None:
    """Take back the variants that are known no more, or are files of Hydra's now: a process may have seen another
    benchmark of the same name before."""
    variants = {*discover.stated_variants(), *discover.points()}
    for group, name in [*_STORED]:
        if group == "benchmark" and not name.endswith("_schema") and name not in variants:
            del _STORED[group, name]
            del ConfigStore.instance().repo[group][f"{name}.yaml"]


def _store(group: str | None, name: str, node: Any, *, key: object = None) -> None:
    """Store a node once per process: Hydra walks through all fields of a schema. `key` is the node itself, or stands
    for one that is made anew."""
    key = node if key is None else key
    if _STORED.get((group, name)) is not key:
        ConfigStore.instance().store(group=group, name=name, node=node)
        _STORED[group, name] = key
