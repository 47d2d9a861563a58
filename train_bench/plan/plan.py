"""Planning: a request and the rules -> N complete jobs. Anything that the rules forbid is refused here, before any
process is started."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import cattrs

from train_bench import seeds
from train_bench.core import files
from train_bench.core.job import OF_ONE_JOB, Device, Job, Precision, jobs_of
from train_bench.core.secret_filter import refuse_secrets
from train_bench.energy import meter
from train_bench.errors import RequestError
from train_bench.launcher import LauncherConfig
from train_bench.plan import budget, command, discover, fault_plan
from train_bench.plan.definition import changes
from train_bench.plan.disclosed import disclosed
from train_bench.plan.interpreter import LAUNCHERS
from train_bench.plan.run_config import TRAITS, RunConfig
from train_bench.progress import EvalSchedule, Unit
from train_bench.rules.allowed import CLOSED
from train_bench.rules.checks import preflight
from train_bench.rules.explain import explain
from train_bench.rules.fixed_values import departures
from train_bench.rules.ruleset import BenchmarkRules, Ruleset
from train_bench.task import BenchmarkConfig

SILENT_SECONDS = 600.0
"""Time that a rank of a reference may do no step and no collective, unless the user says otherwise."""

PROGRAM_SILENT_SECONDS = 14_400.0
"""Time that a program of the user's own may neither log nor print, unless the user says otherwise."""

MOST_EVALUATIONS = 100_000
"""More than any benchmark has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign plan: provenance, and one job per run; as a file, `plan.json`.

    request        the requested options, except those that the jobs hold
    software       software of the planner: `sources` (digest), `python`, `packages`, where the reference did not come
                   with train_bench its `reference` (folder, digest, revision), and with a command its `program`
    points_digest  of the benchmark's reference convergence points; None where it has none
    """

    created: str
    train_bench: str
    revision: str | None
    software: Mapping[str, Any]
    benchmark: str
    variant: str
    reference: str
    ruleset: str
    ruleset_digest: str
    points_digest: str | None
    launcher: str
    world_size: int
    seeds: str
    runs_required: int
    changes: tuple[str, ...]
    request: Mapping[str, Any]
    jobs: tuple[Job, ...]


def as_json(plan: Plan) -> dict[str, Any]:
    """Content of `plan.json`: fields common to all jobs are written once. The folder is where the plan is."""
    written: dict[str, Any] = cattrs.unstructure(plan)
    shared = written["jobs"][0]
    of_each = [{name: job[name] for name in OF_ONE_JOB} for job in written.pop("jobs")]
    for name in (*OF_ONE_JOB, "folder"):
        del shared[name]
    return {**written, "shared": shared, "jobs": of_each}


def from_json(written: Mapping[str, Any], folder: Path) -> Plan:
    """The plan of `as_json`'s output, now in `folder`. Raises `KeyError`, `TypeError`, `ValueError` or
    `cattrs.BaseValidationError` for anything else."""
    jobs = [job | {"folder": folder.resolve()} for job in jobs_of({**written})]
    return cattrs.structure({**written, "jobs": jobs}, Plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Provenance of a plan: the software, machine and files that it depends on."""

    now: datetime
    version: str
    revision: str | None
    software: Mapping[str, Any]
    points_digest: str | None
    variant: str
    cache: Path
    cwd: Path = field(default_factory=Path.cwd)


def make_plan(
    run_config: RunConfig,
    ruleset: Ruleset,
    provenance: Provenance,
    *,
    reference_runs: bool,
    to_be_run: bool = True,
) -> Plan:
    """Plan all jobs. `reference_runs` plans the at least 2 N runs of a reference convergence point instead of the N
    runs of a result. Without `to_be_run`, the state of the machine is not checked.

    Raises `RequestError` where the rules, the launcher or arithmetic forbid the request.
    """
    rules = ruleset.benchmark(run_config.benchmark.benchmark)
    refuse_secrets(asdict(run_config))
    _refuse_launcher(run_config)
    config = _complete(run_config, rules, provenance)
    announcement = asdict(run_config.submission) | asdict(run_config.system)
    announcement["submission_benchmark"] = config.benchmark
    if run_config.deterministic:
        announcement["deterministic"] = True
    stated = disclosed(
        rules,
        config,
        provenance.variant,
        launcher=run_config.launcher,
        precision=run_config.precision,
    )
    _refuse_what_the_rules_forbid(run_config, rules, config, announcement | stated, to_be_run=to_be_run)
    if run_config.command is None:  # a program announces its own settings
        announcement |= stated
    runs = _number_of_runs(run_config, rules, reference_runs=reference_runs)
    if reference_runs and run_config.precision is not Precision.fp32:
        raise RequestError(
            f"A reference convergence point is made in fp32; precision={run_config.precision.value} was requested."
        )
    purpose = "reference run" if reference_runs else "run"  # a point does not record its runs
    chosen = (
        seeds.from_entropy(runs)
        if run_config.seed is None
        else seeds.from_base(run_config.seed, runs, purpose=purpose)
    )
    limit = None if run_config.max_minutes is None else budget.Budget(minutes=run_config.max_minutes)
    _refuse_restarts(run_config, reference_runs=reference_runs)
    meter.parse_options(asdict(run_config))
    folder = _folder(run_config, config, provenance)
    job = Job(
        benchmark=config.benchmark,
        reference=config.reference,
        launcher=run_config.launcher.name,
        launcher_config=asdict(run_config.launcher),
        index=0,
        seed=0,
        nodes=run_config.launcher.nodes,
        nproc_per_node=run_config.launcher.nproc_per_node,
        threads_per_rank=run_config.launcher.threads_per_rank,
        device=run_config.device,
        precision=run_config.precision,
        drop_caches=run_config.drop_caches,
        start_limit_seconds=run_config.start_limit_seconds,
        stall_limit_seconds=_stall_limit(run_config),
        config=asdict(config),
        announcement=announcement,
        target=rules.target,
        unit=rules.unit,
        schedule=_schedule(config, rules),
        folder=folder,
        reference_folder=discover.folder_of("references", config.reference),
        launcher_folder=discover.folder_of("launchers", run_config.launcher.name),
        command=None
        if run_config.command is None
        else command.read(run_config.command, config.hyperparameters.logged(), provenance.cwd),
        stop_when=None if limit is None else limit.text,
        keep_weights=run_config.keep_weights,
        deterministic=run_config.deterministic,
        checkpoint_seconds=run_config.checkpoint_seconds,
        faults=run_config.inject_faults,
        drop_caches_command=run_config.drop_caches_command,
        python=run_config.python,
    )
    return Plan(
        created=provenance.now.isoformat(timespec="seconds"),
        train_bench=provenance.version,
        revision=provenance.revision,
        software=provenance.software,
        benchmark=config.benchmark,
        variant=provenance.variant,
        reference=config.reference,
        ruleset=ruleset.name,
        ruleset_digest=rules.digest,
        points_digest=provenance.points_digest,
        launcher=run_config.launcher.name,
        world_size=job.world_size,
        seeds="entropy" if run_config.seed is None else "fixed",
        runs_required=2 * rules.runs if reference_runs else rules.runs,
        changes=changes(config.benchmark, asdict(config), job.world_size),
        request={key: value for key, value in asdict(run_config).items() if not TRAITS[key].in_jobs}
        | {"stop_when": job.stop_when, "faults": job.faults},
        jobs=tuple(replace(job, index=index, seed=seed) for index, seed in enumerate(chosen)),
    )


def _stall_limit(run_config: RunConfig) -> float:
    if run_config.stall_limit_seconds is not None:
        return run_config.stall_limit_seconds
    return SILENT_SECONDS if run_config.command is None else PROGRAM_SILENT_SECONDS


def _refuse_launcher(run_config: RunConfig) -> None:
    if run_config.command is not None:
        _refuse_division(run_config.launcher)
    if run_config.python is not None:
        _refuse_interpreter(run_config)
    reason = discover.launcher(run_config.launcher).refuse(run_config.benchmark)
    if reason:
        raise RequestError(reason)
    for name in ("start_limit_seconds", "stall_limit_seconds"):
        limit = getattr(run_config, name)
        if limit is not None and limit <= 0:
            raise RequestError(f"{name} is {limit:g}; it has to be above 0.")
    threads = run_config.launcher.threads_per_rank
    if threads is not None and threads < 1:
        raise RequestError(f"launcher.threads_per_rank is {threads}; it has to be at least 1.")
    if run_config.precision is Precision.tf32 and run_config.deterministic:
        raise RequestError("deterministic=true goes with fp32, bf16 or fp16; precision=tf32 was requested.")
    if run_config.precision is Precision.tf32 and run_config.device is Device.cpu:
        raise RequestError("precision=tf32 exists on GPUs only; with device=cpu use fp32, bf16 or fp16.")
    if run_config.command is None:
        _refuse_batch(run_config)
    for name in ("keep_weights", "deterministic"):
        if getattr(run_config, name) and run_config.command is not None:
            raise RequestError(f"{name}=true is for references; a command has its own ways. Leave it out.")


def _refuse_interpreter(run_config: RunConfig) -> None:
    """Refuse another interpreter where it is not that of the ranks, or not on this host alone."""
    if run_config.command is not None:
        raise RequestError(
            f"python={run_config.python} is for references; a command names its own interpreter, such as "
            "command='/venv/bin/python train.py'. Leave python= out."
        )
    launcher = run_config.launcher
    if launcher.name not in LAUNCHERS or launcher.nodes > 1:
        raise RequestError(
            f"python= starts ranks on this host with launcher={' or '.join(LAUNCHERS)}; launcher={launcher.name} on "
            f"{launcher.nodes} host(s) was requested. Choose one of these, or leave python= out."
        )


def _refuse_division(launcher: LauncherConfig) -> None:
    """Refuse launcher options that divide the work of a reference among ranks."""
    for name in ("shard", "tensor_parallel", "zero_stage"):
        value = getattr(launcher, name, None)
        if value != getattr(type(launcher)(name=launcher.name), name, None):
            raise RequestError(
                f"launcher.{name}={getattr(value, 'value', value)} is for references; a command divides its work among "
                f"ranks by itself. Leave it out."
            )


def _refuse_batch(run_config: RunConfig) -> None:
    """Refuse a batch that the ranks of a reference cannot divide; a user's own program is not checked."""
    hyperparameters, parts = run_config.benchmark.hyperparameters, run_config.launcher.data_ranks
    batch, steps = hyperparameters.global_batch_size, hyperparameters.gradient_accumulation_steps
    of = "ranks" if run_config.launcher.together == 1 else "groups of ranks"
    if steps < 1:
        raise RequestError(f"gradient_accumulation_steps is {steps}; it has to be at least 1.")
    if batch < 1 or batch % (parts * steps):
        raise RequestError(
            f"global_batch_size {batch} cannot be divided into {parts} {of} x {steps} gradient "
            f"accumulation steps; choose a multiple of {parts * steps}."
        )


def _refuse_restarts(run_config: RunConfig, *, reference_runs: bool) -> None:
    """Refuse checkpoints and faults in untested or contradictory combinations."""
    seconds, launcher = run_config.checkpoint_seconds, run_config.launcher
    if run_config.inject_faults is not None:
        faults = fault_plan.read(run_config.inject_faults)
        if seconds is None:
            raise RequestError(
                f"inject_faults={run_config.inject_faults!r} needs checkpoints to start again from; set "
                f"checkpoint_seconds=30, or 0 for one after every evaluation."
            )
        if faults.rank >= launcher.world_size:
            raise RequestError(
                f"inject_faults={run_config.inject_faults!r} names rank {faults.rank}; the run has ranks 0 to "
                f"{launcher.world_size - 1}."
            )
    if seconds is None:
        return
    if not 0 <= seconds < math.inf:
        raise RequestError(
            f"checkpoint_seconds is {seconds:g}; it has to be 0 or a number of seconds above it."
        )
    if run_config.command is not None:
        raise RequestError(
            "checkpoint_seconds= and inject_faults= are for references; a command would have to save and continue by "
            "itself. Leave them out."
        )
    if reference_runs:
        raise RequestError("Reference runs are whole; leave out checkpoint_seconds= and inject_faults=.")
    if not type(launcher).RESTARTS or launcher.nodes > 1:
        tried = [name for name in discover.launchers() if discover.launcher_config(name).RESTARTS]
        raise RequestError(
            f"Starting again from checkpoints was tried on one host, with launcher={' and '.join(tried)}; "
            f"launcher={launcher.name} on {launcher.nodes} host(s) was requested. Choose one of these, or leave out "
            f"checkpoint_seconds= and inject_faults=."
        )
    if launcher.cannot_continue is not None:
        raise RequestError(
            f"{launcher.cannot_continue}; leave it out, or checkpoint_seconds= and inject_faults=."
        )


def _complete(run_config: RunConfig, rules: BenchmarkRules, provenance: Provenance) -> BenchmarkConfig:
    """The benchmark's configuration, completed with values of the rules and of the machine's user."""
    config = run_config.benchmark.for_ranks(run_config.launcher.world_size)
    evaluation = config.evaluation
    due = rules.schedule_at(config.hyperparameters.global_batch_size)
    if due is not None:
        default = due.default()
        evaluation = replace(
            evaluation,
            first=default.first if evaluation.first is None else evaluation.first,
            period=default.period if evaluation.period is None else evaluation.period,
        )
    data = files.own_path(run_config.data_dir) if run_config.data_dir else provenance.cache / config.benchmark
    return replace(config, evaluation=evaluation, data_dir=str(data.resolve()))


def _refuse_what_the_rules_forbid(
    run_config: RunConfig,
    rules: BenchmarkRules,
    config: BenchmarkConfig,
    announcement: Mapping[str, Any],
    *,
    to_be_run: bool,
) -> None:
    due = rules.schedule_at(config.hyperparameters.global_batch_size)
    of_reference = [discover.refuse_reference(config.reference), config.refuse()]
    reasons = [
        *(of_reference if run_config.command is None else ()),
        due.refuse(config.evaluation.first, config.evaluation.period) if due else None,
    ]
    problems = [reason for reason in reasons if reason]
    # The ranks detect the platform's name if the user sets none.
    values = dict(announcement, submission_platform=announcement["submission_platform"] or "as found")
    values |= config.hyperparameters.logged()
    problems += [explain(failure) for failure in preflight(rules, values)]
    if values["submission_division"] == CLOSED:
        other = "Set an allowed value, or submission.submission_division=open."
        problems += [f"{departure} {other}" for departure in departures(rules, values)]
    if run_config.seed is not None and not rules.fixed_seeds_allowed:
        problems.append(
            f"seed={run_config.seed} fixes the seeds; {rules.ruleset} demands seeds from entropy. Leave seed out."
        )
    if to_be_run and not run_config.drop_caches and not rules.uncleared_cache_allowed:
        problems.append(f"{rules.ruleset} demands cleared caches before each run; set drop_caches=true.")
    if run_config.drop_caches_command is not None:
        problems += _problems_of_command(run_config)
    if problems:
        raise RequestError(" ".join(problems))


def _problems_of_command(run_config: RunConfig) -> list[str]:
    """Problems of `drop_caches_command`."""
    text = str(run_config.drop_caches_command)
    if not run_config.drop_caches:
        return ["drop_caches_command= requires drop_caches=true; add that, or leave drop_caches_command out."]
    try:
        return (
            []
            if shlex.split(text)
            else ["drop_caches_command is empty; give a program that drops page caches."]
        )
    except ValueError as error:
        return [f"drop_caches_command={text!r} cannot be split into words: {str(error).lower()}."]


def _number_of_runs(run_config: RunConfig, rules: BenchmarkRules, *, reference_runs: bool) -> int:
    if reference_runs:
        runs = 2 * rules.runs if run_config.runs is None else run_config.runs
        if runs < 2 * rules.runs and not (run_config.append_point and runs >= 1):
            raise RequestError(
                f"A reference convergence point of {rules.name} takes at least {2 * rules.runs} runs; "
                f"runs={runs} was requested."
            )
        return runs
    runs = rules.runs if run_config.runs is None else run_config.runs
    if runs < 1:
        raise RequestError(
            f"runs={runs} was requested; a campaign has at least 1 run (fewer than the {rules.runs} of "
            f"{rules.ruleset} make the score incomplete, of more the median window counts)."
        )
    return runs


def _folder(run_config: RunConfig, config: BenchmarkConfig, provenance: Provenance) -> Path:
    if run_config.output:
        return files.own_path(run_config.output).resolve()
    stamp = provenance.now.strftime("%Y%m%dT%H%M%SZ")
    return Path(f"results/{stamp}_{config.benchmark}_{run_config.launcher.name}").resolve()


def _schedule(config: BenchmarkConfig, rules: BenchmarkRules) -> EvalSchedule:
    evaluation = config.evaluation
    if evaluation.first is None or evaluation.period is None:
        raise RequestError("The ruleset gives no evaluation schedule; set benchmark.evaluation.")
    bounds = {"first": evaluation.first, "period": evaluation.period, "until": evaluation.until}
    for name, value in bounds.items():
        if not math.isfinite(value) or value < 0 or (name == "period" and value == 0):
            raise RequestError(
                f"benchmark.evaluation.{name} is {value:g}; it has to be a finite number above 0."
            )
    if evaluation.until / evaluation.period > MOST_EVALUATIONS:
        raise RequestError(
            f"benchmark.evaluation.until={evaluation.until:g} would take over {MOST_EVALUATIONS} evaluations, one "
            f"every {evaluation.period:g}; choose an earlier end."
        )
    due = rules.schedule_at(config.hyperparameters.global_batch_size)
    in_epochs = rules.unit is Unit.EPOCH
    schedule = EvalSchedule(
        first=evaluation.first,
        period=evaluation.period,
        until=evaluation.until,
        start=due.start if due else 0.0,
        samples_per_unit=(config.samples_per_epoch or 1) if in_epochs else 1,
        samples_count=rules.counted == "samples_count",
    )
    if not schedule.points():
        raise RequestError(
            f"benchmark.evaluation.until={evaluation.until:g} ends before the first evaluation at "
            f"{evaluation.first:g}."
        )
    return schedule


def jobs_to_do(jobs: Sequence[Job], *, retry_failed: bool, failed: Sequence[int]) -> tuple[Job, ...]:
    """The jobs of a campaign that have no result yet, and the failed ones if they are to be repeated."""
    again = set(failed) if retry_failed else set()
    return tuple(job for job in jobs if not job.result_file.exists() or job.index in again)
