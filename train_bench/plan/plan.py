"""Planning: a request and the rules -> N complete jobs. Anything that the rules forbid is refused here, before any
process is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import cattrs

from train_bench import seeds
from train_bench.core import files
from train_bench.core.job import GRACE_SECONDS, OF_ONE_JOB, Job, jobs_of
from train_bench.plan import budget, command, discover
from train_bench.plan.asked import Asked
from train_bench.plan.definition import changes
from train_bench.plan.provenance import Provenance
from train_bench.plan.refusals import refuse
from train_bench.plan.run_config import TRAITS, RunConfig
from train_bench.rules.ruleset import BenchmarkRules

SILENT_SECONDS = 600.0
"""Time that a rank of a reference may do no step and no collective, unless the user says otherwise."""

PROGRAM_SILENT_SECONDS = 14_400.0
"""Time that a program of the user's own may neither log nor print, unless the user says otherwise."""


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


OWN = {"benchmark", "launcher", "command", "evaluator", *OF_ONE_JOB}
COPIED = sorted(TRAITS.keys() & {field.name for field in fields(Job)} - OWN)
"""Options that a job has as they were requested."""


def make_plan(
    run_config: RunConfig,
    rules: BenchmarkRules,
    provenance: Provenance,
    *,
    reference_runs: bool,
    to_be_run: bool = True,
) -> Plan:
    """Plan all jobs. `reference_runs` plans the at least 2 N runs of a reference convergence point instead of the N
    runs of a result. Without `to_be_run`, the state of the machine is not checked.

    Raises `RequestError` where the rules, the launcher or arithmetic forbid the request.
    """
    asked = Asked(run_config, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)
    refuse(asked)
    job, config = _job(asked), asked.config
    return Plan(
        created=provenance.now.isoformat(timespec="seconds"),
        train_bench=provenance.version,
        revision=provenance.revision,
        software=provenance.software,
        benchmark=config.benchmark,
        variant=provenance.variant,
        reference=config.reference,
        ruleset=rules.ruleset,
        ruleset_digest=rules.digest,
        points_digest=provenance.points_digest,
        launcher=job.launcher,
        world_size=job.world_size,
        seeds="entropy" if run_config.seed is None else "fixed",
        runs_required=2 * rules.runs if reference_runs else rules.runs,
        changes=changes(config.benchmark, asdict(config), job.world_size),
        request={key: value for key, value in asdict(run_config).items() if not TRAITS[key].in_jobs}
        | {"stop_when": job.stop_when, "faults": job.faults},
        jobs=tuple(replace(job, index=index, seed=seed) for index, seed in enumerate(_seeds(asked))),
    )


def _job(asked: Asked) -> Job:
    """The first job: the options as requested, and what follows from them and from the rules."""
    options, config, rules, launcher = asked.options, asked.config, asked.rules, asked.options.launcher
    copied = {name: getattr(options, name) for name in COPIED}
    return Job(
        **copied
        | {
            "stall_limit_seconds": _stall_limit(options),
            "grace_seconds": GRACE_SECONDS if options.grace_seconds is None else options.grace_seconds,
        },
        benchmark=config.benchmark,
        reference=config.reference,
        launcher=launcher.name,
        launcher_config=asdict(launcher),
        index=0,
        seed=0,
        nodes=launcher.nodes,
        nproc_per_node=launcher.nproc_per_node,
        threads_per_rank=launcher.threads_per_rank,
        config=asdict(config),
        announcement=asked.announcement | (asked.stated if options.command is None else {}),
        target=rules.target,
        unit=rules.unit,
        schedule=asked.schedule,
        folder=_folder(asked),
        reference_folder=discover.folder_of("references", config.reference),
        launcher_folder=discover.folder_of("launchers", launcher.name),
        command=None
        if options.command is None
        else command.read(options.command, config.hyperparameters.logged(), asked.provenance.cwd),
        evaluator=None
        if options.evaluator is None
        else command.evaluator(
            options.evaluator,
            config.benchmark,
            config.hyperparameters.logged(),
            asked.provenance.cwd,
        ),
        stop_when=None if options.max_minutes is None else budget.Budget(minutes=options.max_minutes).text,
        faults=options.inject_faults,
    )


def _stall_limit(options: RunConfig) -> float:
    if options.stall_limit_seconds is not None:
        return options.stall_limit_seconds
    return SILENT_SECONDS if options.command is None else PROGRAM_SILENT_SECONDS


def _seeds(asked: Asked) -> Sequence[int]:
    """Seeds of the runs. A reference convergence point does not record its runs."""
    if asked.options.seed is None:
        return seeds.from_entropy(asked.runs)
    purpose = "reference run" if asked.reference_runs else "run"
    return seeds.from_base(asked.options.seed, asked.runs, purpose=purpose)


def _folder(asked: Asked) -> Path:
    if asked.options.output:
        return files.own_path(asked.options.output).resolve()
    stamp = asked.provenance.now.strftime("%Y%m%dT%H%M%SZ")
    return Path(f"results/{stamp}_{asked.config.benchmark}_{asked.options.launcher.name}").resolve()
