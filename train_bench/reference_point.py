"""A judged campaign of reference runs -> a reference convergence point under `rcp/<round>/`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from train_bench import papers
from train_bench.errors import LogError
from train_bench.judge import rcp as points
from train_bench.judge.entry import Judgement
from train_bench.progress import Unit


def add(judged: Judgement, folder: Path, rcp: Path) -> Path:
    """Write the convergence of the runs in `folder` as a record of `rcp/<round>/<reference>.json`, in the
    official format; a record of the same benchmark and batch size is replaced. Returns the file.

    Refuses runs that did not all converge, are not compliant, or are fewer than twice a result's: such
    a record would be no reference (rules, section "Reference convergence points").
    """
    plan = papers.read_json(folder / "plan.json")
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
    record = _record(judged, plan, papers.read_json(folder / "system.json"))
    path: Path = rcp / plan["ruleset"] / f"{plan['reference']}.json"
    records = papers.read_json(path) if path.exists() else {}
    name = f"{record['Benchmark']}_ref_{record['BS']}"
    papers.write_json(path, dict(sorted({**records, name: record}.items(), key=_benchmark_and_batch_size)))
    return path


def _record(judged: Judgement, plan: dict[str, Any], system: dict[str, Any]) -> dict[str, Any]:
    job = plan["jobs"][0]
    hyperparameters = {
        key: value for key, value in job["config"]["hyperparameters"].items() if value is not None
    }
    return {
        "Benchmark": plan["benchmark"],
        "Creator": job["announcement"]["submission_org"],
        "When": datetime.fromisoformat(plan["created"]).date().isoformat(),
        "Platform": f"{system['platform']}, torch {system['packages']['torch']}, {job['precision']}",
        "Source": f"train_bench {plan['train_bench']}, revision {plan['revision']}",
        "BS": hyperparameters.pop("global_batch_size"),
        "Hyperparams": hyperparameters,
        points.VALUES[Unit(job["unit"])]: [record.convergence for record in judged.records],
    }


def _benchmark_and_batch_size(item: tuple[str, Any]) -> tuple[str, int]:
    return item[1]["Benchmark"], item[1]["BS"]
