"""A judged campaign of reference runs -> a reference convergence point under `rcp/<round>/`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench import files
from train_bench.errors import LogError, RequestError
from train_bench.job import jobs_of
from train_bench.judge import rcp as points
from train_bench.judge.entry import Judgement
from train_bench.progress import Unit

if TYPE_CHECKING:
    from train_bench.plan.plan import Plan


def refuse(plan: Plan, rcp_folders: Sequence[Path], *, replace: bool) -> None:
    """Refuse reference runs that could not become a point: `RequestError` before any of them is started."""
    if plan.changes:
        raise RequestError(
            f"A reference convergence point is made of the benchmark as it is defined; leave out "
            f"{', '.join(plan.changes)}."
        )
    batch_size = plan.jobs[0].config["hyperparameters"]["global_batch_size"]
    if not replace:
        _refuse_to_replace(rcp_folders, plan.ruleset, plan.reference, _name(plan.benchmark, batch_size))


def _refuse_to_replace(rcp_folders: Sequence[Path], ruleset: str, reference: str, name: str) -> None:
    for path in (_file(folder, ruleset, reference) for folder in rcp_folders):
        records = _records(path)
        if name in records:
            raise RequestError(
                f"{path} has the point {name} already, of {records[name].get('When')}; results that were compared "
                f"with it would be judged otherwise. Give replace_point=true to write over it, or choose a batch "
                f"size that has none."
            )


def add(judged: Judgement, folder: Path, to: Path, rcp_folders: Sequence[Path], *, replace: bool) -> Path:
    """Write the convergence of the runs in `folder` as a record of `<to>/<round>/<reference>.json`, in the
    official format. Where one of `rcp_folders` has a record of the same benchmark and batch size, that takes leave to
    replace it. Returns the file.

    Refuses runs that did not all converge, are not compliant, or are fewer than twice a result's: such
    a record would be no reference (rules, section "Reference convergence points").
    """
    plan = files.read_json(folder / "plan.json")
    problems = [
        f"{Path(record.file).name}: {finding.message}"
        for record, verdict in zip(judged.records, judged.verdicts, strict=True)
        for finding in verdict.findings
        if not (verdict.compliant and verdict.converged)
    ]
    required = plan["runs_required"]
    if len(judged.records) < required:
        problems.append(f"{len(judged.records)} of the at least {required} runs are there.")
    if problems:
        raise LogError(f"{folder} gives no reference convergence point. {' '.join(problems)}")
    record = _record(judged, plan, files.read_json(folder / "system.json"))
    path, name = _file(to, plan["ruleset"], plan["reference"]), _name(record["Benchmark"], record["BS"])
    if not replace:
        _refuse_to_replace(rcp_folders, plan["ruleset"], plan["reference"], name)
    records = _records(path)
    files.write_json(path, dict(sorted({**records, name: record}.items(), key=_benchmark_and_batch_size)))
    return path


def _file(rcp: Path, ruleset: str, reference: str) -> Path:
    return rcp / ruleset / f"{reference}.json"


def _records(path: Path) -> dict[str, Any]:
    return dict(files.read_json(path)) if path.exists() else {}


def _name(benchmark: str, batch_size: int) -> str:
    return f"{benchmark}_ref_{batch_size}"


def _record(judged: Judgement, plan: dict[str, Any], system: dict[str, Any]) -> dict[str, Any]:
    job = jobs_of(plan)[0]
    hyperparameters = {
        key: value for key, value in job["config"]["hyperparameters"].items() if value is not None
    }
    return {
        "Benchmark": plan["benchmark"],
        "Creator": job["announcement"]["submission_org"],
        "When": datetime.fromisoformat(plan["created"]).date().isoformat(),
        "Platform": f"{system['platform']}, {_trained_by(job, system)}",
        "Source": f"train_bench {plan['train_bench']}, revision {plan['revision']}",
        "BS": hyperparameters.pop("global_batch_size"),
        "Hyperparams": hyperparameters,
        "Seeds": [record.seed for record in judged.records],
        points.VALUES[Unit(job["unit"])]: [record.convergence for record in judged.records],
    }


def _trained_by(job: dict[str, Any], system: dict[str, Any]) -> str:
    if job.get("command"):
        return shlex.join(job["command"]["argv"])
    return f"torch {system['packages']['torch']}, {job['precision']}"


def _benchmark_and_batch_size(item: tuple[str, Any]) -> tuple[str, int]:
    return item[1]["Benchmark"], item[1]["BS"]
