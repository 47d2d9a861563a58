"""Reference convergence point under `rcp/<round>/` from a judged campaign of reference runs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from train_bench.campaign import lock
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.errors import LogError, RequestError
from train_bench.judge import rcp as points
from train_bench.judge.entry import Judgement
from train_bench.progress import Unit


def refuse(campaign: Campaign, *, replace: bool, append: bool = False) -> None:
    """Refuse reference runs that could not become a point: `RequestError` before any of them is started."""
    plan, rcp_folders = campaign.plan, campaign.rcp_folders
    if replace and append:
        raise RequestError("replace_point=true and append_point=true exclude each other; leave one out.")
    if plan.changes:
        raise RequestError(
            "A reference convergence point needs the unchanged benchmark; leave out "
            f"{', '.join(plan.changes)}."
        )
    hyperparameters = dict(plan.jobs[0].config["hyperparameters"])
    batch_size = hyperparameters.pop("global_batch_size")
    if append:
        as_read = json.loads(json.dumps(_logged(hyperparameters)))
        path, record = _to_append_to(
            rcp_folders, plan.ruleset, plan.reference, _name(plan.benchmark, batch_size)
        )
        _refuse_other_runs(path, record, _values(plan.jobs[0].unit), as_read, [job.seed for job in plan.jobs])
    elif replace:
        for folder in rcp_folders:
            _records(_file(folder, plan.ruleset, plan.reference))
    else:
        _refuse_to_replace(rcp_folders, plan.ruleset, plan.reference, _name(plan.benchmark, batch_size))


def _refuse_to_replace(rcp_folders: Sequence[Path], ruleset: str, reference: str, name: str) -> None:
    for path in (_file(folder, ruleset, reference) for folder in rcp_folders):
        records = _records(path)
        if name in records:
            raise RequestError(
                f"{path} already has the point {name}, of {records[name].get('When')}; replacing it "
                "changes the verdict on earlier results. Give replace_point=true to overwrite it, or "
                "choose another batch size."
            )


def _to_append_to(
    rcp_folders: Sequence[Path], ruleset: str, reference: str, name: str
) -> tuple[Path, dict[str, Any]]:
    """Record to add runs to, and its file: the first, which is the one that counts."""
    for path in (_file(folder, ruleset, reference) for folder in rcp_folders):
        records = _records(path)
        if name in records:
            return path, records[name]
    raise RequestError(
        f"There is no point {name} to add runs to; leave append_point=true out, or choose a batch size "
        "with a point."
    )


def _refuse_other_runs(
    path: Path,
    record: Mapping[str, Any],
    values: str,
    hyperparameters: Mapping[str, Any],
    seeds: Sequence[int | None],
) -> None:
    """Refuse to add runs of another training, or runs that the point already has."""
    of_point = record.get("Hyperparams", {})
    other = sorted(
        name for name in {*of_point, *hyperparameters} if of_point.get(name) != hyperparameters.get(name)
    )
    if other or values not in record:
        changed = [f"{name}={of_point.get(name)} (now {hyperparameters.get(name)})" for name in other]
        differing = ", ".join(changed) or f"no {values}"
        raise RequestError(
            f"The point at batch size {record['BS']} in {path} was made with {differing}; runs with other "
            "values cannot be added to it. Give these values, or replace the point with "
            "replace_point=true."
        )
    again = sorted({*record.get("Seeds", ())}.intersection(seeds))
    if again:
        raise RequestError(
            f"The point at batch size {record['BS']} in {path} already has runs with these seeds, for "
            f"example {again[0]}; leave seed= out, or give another."
        )


def add(
    judged: Judgement,
    folder: Path,
    to: Path,
    rcp_folders: Sequence[Path],
    *,
    replace: bool,
    append: bool = False,
) -> Path:
    """Write the convergence of the runs in `folder` as a record of `<to>/<round>/<reference>.json`, in the official
    format. If one of `rcp_folders` has a record of the same benchmark and batch size, replacing it, or adding the
    runs to it, requires the option for that. Returns the file.

    Refuses runs that did not all converge, are not compliant, or are fewer than twice a result's (including those of
    the point that they are added to): such a record would not be a reference (rules, section "Reference convergence
    points").
    """
    plan = files.read_json(folder / "plan.json")
    problems = [
        f"{Path(record.file).name}: {finding.message}"
        for record, verdict in zip(judged.records, judged.verdicts, strict=True)
        for finding in verdict.findings
        if not (verdict.compliant and verdict.converged)
    ]
    required = len(jobs_of(plan)) if append else plan["runs_required"]
    if len(judged.records) < required:
        problems.append(f"There are {len(judged.records)} runs; at least {required} are required.")
    if problems:
        raise LogError(f"{folder} gives no reference convergence point. {' '.join(problems)}")
    record = _record(judged, plan, files.read_json(folder / "system.json"))
    written, name = _file(to, plan["ruleset"], plan["reference"]), _name(record["Benchmark"], record["BS"])
    if append:
        written, _ = _to_append_to(rcp_folders, plan["ruleset"], plan["reference"], name)
    with lock.alone(written.parent):  # another campaign may add its point to the file now
        return _write(record, plan, to, rcp_folders, replace=replace, append=append)


def _write(
    record: dict[str, Any],
    plan: Mapping[str, Any],
    to: Path,
    rcp_folders: Sequence[Path],
    *,
    replace: bool,
    append: bool,
) -> Path:
    path, name = _file(to, plan["ruleset"], plan["reference"]), _name(record["Benchmark"], record["BS"])
    if append:
        found, earlier = _to_append_to(rcp_folders, plan["ruleset"], plan["reference"], name)
        record = _together(found, earlier, record, _values(jobs_of(plan)[0]["unit"]), plan["runs_required"])
        folders = [_file(one, plan["ruleset"], plan["reference"]) for one in (*rcp_folders, to)]
        path = min(path, found, key=folders.index)  # what comes first counts
    elif not replace:
        _refuse_to_replace(rcp_folders, plan["ruleset"], plan["reference"], name)
    records = _records(path)
    files.write_json(path, dict(sorted({**records, name: record}.items(), key=_benchmark_and_batch_size)))
    return path


def _together(
    path: Path, earlier: dict[str, Any], later: dict[str, Any], values: str, required: int
) -> dict[str, Any]:
    """Record of a point with the runs of another one added. Seeds are those that are known."""
    _refuse_other_runs(path, earlier, values, later["Hyperparams"], later["Seeds"])
    runs = [*earlier[values], *later[values]]
    if len(runs) < required:
        raise LogError(f"{path} would have {len(runs)} runs; a point requires at least {required}.")
    record: dict[str, Any] = {
        name: _joined(earlier[name], later.get(name))
        for name in ("Creator", "When", "Platform", "Source", "Program")
        if name in earlier
    }
    return {**later, **record, "Seeds": [*earlier.get("Seeds", ()), *later["Seeds"]], values: runs}


def _joined(earlier: Any, later: str | None) -> str:
    return str(earlier) if later is None or later in str(earlier).split("; ") else f"{earlier}; {later}"


def _file(rcp: Path, ruleset: str, reference: str) -> Path:
    return rcp / ruleset / f"{reference}.json"


def _records(path: Path) -> dict[str, dict[str, Any]]:
    """Records of a file, which may be missing."""
    return points.read_records(path) if os.access(path, os.F_OK) else {}


def _name(benchmark: str, batch_size: int) -> str:
    return f"{benchmark}_ref_{batch_size}"


def _record(judged: Judgement, plan: dict[str, Any], system: dict[str, Any]) -> dict[str, Any]:
    job = jobs_of(plan)[0]
    hyperparameters = _logged(job["config"]["hyperparameters"])
    return {
        "Benchmark": plan["benchmark"],
        "Creator": job["announcement"]["submission_org"],
        "When": datetime.fromisoformat(plan["created"]).date().isoformat(),
        "Platform": f"{system['platform']}, {_trained_by(job, system)}",
        "Source": f"train_bench {plan['train_bench']}, revision {plan['revision']}",
        **({"Program": shlex.join(job["command"]["argv"])} if job.get("command") else {}),
        "BS": hyperparameters.pop("global_batch_size"),
        "Hyperparams": hyperparameters,
        "Seeds": [record.seed for record in judged.records],
        _values(job["unit"]): [record.convergence for record in judged.records],
    }


def _logged(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in hyperparameters.items() if value is not None}


def _values(unit: str) -> str:
    """Convergence of the runs, as in a record."""
    return points.VALUES[Unit(unit)]


def _trained_by(job: dict[str, Any], system: dict[str, Any]) -> str:
    if job.get("command"):
        return shlex.join(job["command"]["argv"])
    return f"torch {system['packages']['torch']}, {job['precision']}"


def _benchmark_and_batch_size(item: tuple[str, Any]) -> tuple[str, int]:
    return item[1]["Benchmark"], item[1]["BS"]
