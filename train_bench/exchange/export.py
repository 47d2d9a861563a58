"""Export of a campaign as one file to verify and replay: the specification (`spec.json`) apart from the results
(`results/`), software and data, with metadata as RO-Crate, Croissant, Croissant Tasks and in-toto."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench import __version__
from train_bench.core import files, software
from train_bench.core.git import SOURCE, revision
from train_bench.core.job import Job
from train_bench.core.secret_filter import secrets_in_file, shown_machine
from train_bench.errors import LaunchError, RequestError
from train_bench.exchange import crate
from train_bench.judge import rcp
from train_bench.judge.checks.campaign_checks import differences
from train_bench.judge.checks.unverifiable import ran_as
from train_bench.judge.entry import Judgement
from train_bench.judge.score import ScoredRun
from train_bench.judge.tree import judge_folder
from train_bench.launcher import Launch
from train_bench.logs import log
from train_bench.plan import definition, discover
from train_bench.plan.plan import Plan
from train_bench.plan.process import answer
from train_bench.plan.provenance import ran_with
from train_bench.quality import Target
from train_bench.rules import ruleset
from train_bench.submission.package import without_paths
from train_bench.task import MANIFEST

SPEC, RULES, DATA = "spec.json", "rules.json", "croissant.json"
ENVIRONMENT, DISTRIBUTIONS, ORDER = "environment.json", "distributions.toml", "order.json"
TASKS, STATEMENT, METADATA, SOURCES, RESULTS = (
    "croissant_tasks.json",
    "statement.json",
    "ro-crate-metadata.json",
    "source.tar.gz",
    "results/",
)

LARGEST_SOURCE_BYTES = 20 * 2**20
MOST_DATA_BYTES = 2**31
"""Size limit: of larger prepared data only the manifest is hashed, which has digests of its own."""

OF_RESULTS = (
    *("plan.json", "system.json", "score.json", "hosts.json", "batch.json", "result_*.txt"),
    *("record_*.json", "verified_*.json", "attempts/*.json", "power/*/*.txt"),
)
"""Files of a campaign that are exported; weights and output of ranks stay."""

MINUTES = "minutes"
"""Metrics besides quality."""

HAPPENED = ("created", "jobs")
"""Fields of a plan that belong to one campaign: its date, and the seeds that were drawn."""


def export(plan: Plan, to: Path, key: Path | None) -> str:
    """Write the file; returns its root. Raises `RequestError` if the campaign is not finished, or if this environment
    is not the one it ran in and so cannot describe it."""
    folder = plan.jobs[0].folder
    if to.exists():
        raise RequestError(f"{to} exists; choose another file with --to FILE.")
    missing = [str(job.index) for job in plan.jobs if not job.result_file.is_file()]
    if missing:
        raise RequestError(f"{folder} has no result of run {', '.join(missing)}; finish the campaign first.")
    now = ran_with(plan.reference, plan.ruleset_digest, plan.jobs[0].command)
    other = [one for one in differences(asdict(plan), now) if " source " not in one]
    if other:
        raise RequestError(
            f"The software installed here differs from that of the campaign ({'; '.join(other)}); export "
            "it where it ran."
        )
    judged = judge_folder(
        folder, ruleset_name=None, rcp_folders=discover.rcp_folders(), changes=definition.changes
    )
    content = {RESULTS + str(path.relative_to(folder)): path.read_bytes() for path in _results(folder)}
    content |= {RESULTS + "system.json": _json(_machine(folder))}
    for name, each in content.items():
        _refuse_secret(folder, name.removeprefix(RESULTS), each)
    content |= {
        SPEC: _json(spec(plan, judged)),
        ENVIRONMENT: _json(_machine(folder)),
        ORDER: _json(dict(_logged_values(judged, "order_fingerprint"))),
        DISTRIBUTIONS: distributions(plan.software["python"]).encode(),
        DATA: _json(croissant(plan)),
        RULES: _json(_rules(plan)),
    }
    sources = _sources(plan)
    if sources is not None:
        content[SOURCES] = sources
    content[TASKS] = _json(tasks(plan, judged, content))
    content[STATEMENT] = _json(statement(judged, content))
    content[METADATA] = _json(metadata(plan, judged, content))
    return crate.write(to, content, key=key)


def _refuse_secret(folder: Path, name: str, content: bytes) -> None:
    found = secrets_in_file(name, content)
    if found:
        raise RequestError(
            f"{folder / name} holds what looks like a secret ({', '.join(found[:5])}), which an export would publish. "
            "Nothing was written; run the campaign again with the secret in an environment variable."
        )


def spec(plan: Plan, judged: Judgement) -> dict[str, Any]:
    """Specification: the plan's jobs, and the required hardware, software and data."""
    written = files.read_json(plan.jobs[0].folder / "plan.json")
    job = plan.jobs[0]
    return {
        "plan": without_paths({key: value for key, value in written.items() if key not in HAPPENED}),
        "seeds": {"policy": plan.seeds, "base": plan.request.get("seed"), "runs": len(plan.jobs)},
        "required": {
            "hardware": {
                "accelerators": len(_machine(job.folder)["accelerators"]),
                **_ran_on(job, judged),
            },
            "software": {name: plan.software[name] for name in ("sources", "python", "packages")},
            "data": next((value for _, value in _logged_values(judged, "data_fingerprint")), None),
        },
    }


def _ran_on(job: Job, judged: Judgement) -> dict[str, int]:
    """Nodes and ranks of each: as planned, or of a user's own program as its logs name them."""
    ranks, nodes = judged.score.world_size, ran_as(judged.programs, "hosts") or job.nodes
    if ranks is None or ranks == job.world_size or ranks % nodes:
        return {"nodes": job.nodes, "ranks_per_node": job.nproc_per_node}
    return {"nodes": nodes, "ranks_per_node": ranks // nodes}


def _machine(folder: Path) -> dict[str, Any]:
    machine = files.read_json(folder / "system.json")
    if not isinstance(machine, dict) or not isinstance(machine.get("accelerators"), list):
        raise RequestError(
            f"{folder / 'system.json'} has no list of accelerators; export the campaign with the "
            "system.json that its runs wrote."
        )
    return shown_machine(machine)


def _logged_values(judged: Judgement, key: str) -> Iterator[tuple[str, Any]]:
    """Values of a key by the name of the log."""
    for record in judged.records:
        for event in log.read(Path(record.file)).events:
            if event.key == key:
                yield Path(record.file).name, event.value


def _results(folder: Path) -> Iterator[Path]:
    for pattern in OF_RESULTS:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.is_symlink() and crate.NAME.fullmatch(path.name):
                yield path


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def distributions(python: str) -> str:
    """Installed distributions in the form of PEP 751, as far as an environment can have it: its wheels are unknown, so
    digests are those of RECORD for the installed files, and no installer takes this for a lock."""
    lines = [
        'lock-version = "1.0"',
        'created-by = "train-bench"',
        f'requires-python = "=={python}"',
    ]
    for name, (version, digest) in software.distributions().items():
        lines += ["", "[[packages]]", f'name = "{name}"', f'version = "{version}"']
        if digest is not None:
            lines += ["[packages.tool.train-bench]", f'record-sha256 = "{digest}"']
    return "\n".join(lines) + "\n"


def data_files(plan: Plan) -> dict[str, dict[str, Any]]:
    """Size and sha256 of the prepared data by name; of data too large to read, of their manifest alone. Empty without
    data."""
    folder = Path(str(plan.jobs[0].config["data_dir"]))
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if sum(path.stat().st_size for path in paths) > MOST_DATA_BYTES:
        paths = [path for path in paths if path.name == MANIFEST]
    return {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": files.digest(path)}
        for path in paths
    }


def croissant(plan: Plan) -> dict[str, Any]:
    """The prepared data as Croissant metadata."""
    name = plan.benchmark
    return {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "sc": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "dct": "http://purl.org/dc/terms/",
            "conformsTo": "dct:conformsTo",
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": f"The data of the benchmark {name}, as train-bench prepare makes them.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "contentSize": f"{facts['size']} B",
                "encodingFormat": "application/json"
                if path.endswith(".json")
                else "application/octet-stream",
                "sha256": facts["sha256"],
            }
            for path, facts in data_files(plan).items()
        ],
    }


def _rules(plan: Plan) -> dict[str, Any]:
    """Rules and reference points of the campaign's plan, in full if they are ours and unchanged."""
    rules = ruleset.load(plan.ruleset).benchmark(plan.benchmark)
    points = rcp.load(rules, discover.rcp_folders())
    return {
        "ruleset": plan.ruleset,
        "digest": plan.ruleset_digest,
        "target": str(plan.jobs[0].target),
        "runs": rules.runs,
        "rules": rules.generated if rules.digest == plan.ruleset_digest else None,
        "points_digest": plan.points_digest,
        "points": [asdict(point) for point in points] if rcp.digest(points) == plan.points_digest else None,
    }


def _sources(plan: Plan) -> bytes | None:
    """Source of the revision that the campaign ran from, if this is a clean checkout of it and small."""
    if (
        plan.revision is None
        or plan.revision.endswith("+changes")
        or plan.revision != revision(discover.ROOT)
    ):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, SOURCES)
        words = ("git", "-C", str(discover.ROOT), "archive", f"--output={path}", plan.revision, *SOURCE)
        try:
            answer(Launch(argv=words))
        except LaunchError:
            return None
        return path.read_bytes() if path.stat().st_size <= LARGEST_SOURCE_BYTES else None


def statement(judged: Judgement, content: Mapping[str, bytes]) -> dict[str, Any]:
    """The verdict as an in-toto statement about the logs."""
    listed = crate.listed(content)
    score = judged.score
    passed = [run.file for run in score.runs if run.converged and run.compliant]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": listed[name]["sha256"]}}
            for name in listed
            if name.startswith(f"{RESULTS}result_")
        ],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {
            "result": "PASSED" if score.valid else "FAILED",
            "configuration": [
                {"name": name, "digest": {"sha256": listed[name]["sha256"]}}
                for name in (SPEC, ENVIRONMENT, DISTRIBUTIONS, DATA, RULES)
            ],
            "passedTests": passed,
            "failedTests": [run.file for run in score.runs if run.file not in passed],
        },
    }


def tasks(plan: Plan, judged: Judgement, content: Mapping[str, bytes]) -> dict[str, Any]:
    """Croissant Tasks: the benchmark is a problem, the campaign a solution of it, the results of its runs an
    evaluation."""
    target = plan.jobs[0].target
    data = {"@type": "Dataset", "@id": DATA, "name": plan.benchmark}
    environment = [{"@type": "CreativeWork", "@id": name} for name in (ENVIRONMENT, DISTRIBUTIONS)]
    metrics = [
        _metric(one.metric, f"The target is {one}.", lower_is_better=not one.higher_is_better)
        for one in target.thresholds
    ]
    metrics.append(_metric(MINUTES, "From run_start to run_stop.", lower_is_better=True))
    problem = {
        "@type": "cr:TaskProblem",
        "@id": "#problem",
        "name": plan.benchmark,
        "description": f"Train to {target} under the rules of {plan.ruleset} in the shortest time.",
        "cr:input": data,
        "cr:implementation": {
            "@type": "cr:ImplementationSpec",
            "@id": "#trainer",
            "description": f"Training implementation, within the rules of {RULES}.",
        },
        "cr:execution": {"@type": "cr:ExecutionSpec", "@id": SPEC, "description": "The benchmark task."},
        "cr:evaluation": {
            "@type": "cr:EvaluationSpec",
            "@id": "#measured",
            "cr:expectedMetric": [{"@id": metric["@id"]} for metric in metrics],
        },
    }
    solution = {
        "@type": "cr:TaskSolution",
        "@id": "#campaign",
        "name": f"train-bench run benchmark={plan.variant}",
        "isBasedOn": {"@id": "#problem"},
        "cr:input": {"@id": DATA},
        "cr:implementation": {
            "@type": "SoftwareSourceCode",
            "@id": SOURCES if SOURCES in content else "#train_bench",
            "name": "train_bench",
            "version": plan.revision or __version__,
        },
        "cr:execution": {"@type": "cr:ExecutionInfo", "@id": "#execution", "cr:environment": environment},
        "cr:output": {
            "@type": "Dataset",
            "@id": RESULTS,
            "hasPart": [{"@id": name} for name in sorted(content) if name.startswith(RESULTS)],
        },
        "cr:evaluation": {"@id": "#evaluation"},
    }
    evaluation = {
        "@type": "cr:EvaluationTask",
        "@id": "#evaluation",
        "cr:evaluatedSolution": {"@id": "#campaign"},
        "cr:evaluationResults": [
            {
                "@type": "cr:EvaluationResult",
                "name": run.file,
                "cr:metric": {"@id": f"#{metric}"},
                "cr:value": {"@type": "QuantitativeValue", "value": value},
            }
            for run in judged.score.runs
            for metric, value in _measured(run, target)
        ],
    }
    return {
        "@context": {"@vocab": "https://schema.org/", "cr": "http://mlcommons.org/croissant/"},
        "@graph": [problem, solution, evaluation, *metrics],
    }


def _metric(name: str, description: str, *, lower_is_better: bool) -> dict[str, Any]:
    return {
        "@type": "cr:MetricSpec",
        "@id": f"#{name}",
        "name": name,
        "description": description,
        "cr:lowerIsBetter": lower_is_better,
    }


def _measured(run: ScoredRun, target: Target) -> Iterator[tuple[str, float]]:
    """Metric values of a run by name; none without a number."""
    for name, value in (*target.quality_of(run.quality).metrics.items(), (MINUTES, run.minutes)):
        if value is not None and math.isfinite(value):
            yield name, value


def metadata(plan: Plan, judged: Judgement, content: Mapping[str, bytes]) -> dict[str, Any]:
    """RO-Crate 1.1 metadata: an action with its instrument, objects and results."""
    names = sorted(content)
    times = [evaluated.time_ms for record in judged.records for evaluated in record.evaluations]
    begun = [record.started_ms for record in judged.records if record.started_ms is not None]
    results = [{"@id": name} for name in names if name.startswith(RESULTS)]
    return {
        "@context": "https://w3id.org/ro/crate/1.1/context",
        "@graph": [
            {
                "@id": METADATA,
                "@type": "CreativeWork",
                "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
                "about": {"@id": "./"},
            },
            {
                "@id": "./",
                "@type": "Dataset",
                "name": f"A campaign of {plan.variant}",
                "description": f"{len(plan.jobs)} runs under {plan.ruleset} to {judged.score.target}.",
                "datePublished": plan.created,
                "license": "not stated",
                "hasPart": [{"@id": name} for name in names],
                "mentions": {"@id": "#campaign"},
            },
            {
                "@id": "#campaign",
                "@type": "CreateAction",
                "name": f"train-bench run benchmark={plan.variant}",
                "startTime": _iso(min(begun)) if begun else plan.created,
                "endTime": _iso(max(times)) if times else plan.created,
                "instrument": {"@id": "#train_bench"},
                "object": [{"@id": name} for name in (SPEC, DATA, RULES)],
                "result": results,
            },
            {
                "@id": "#train_bench",
                "@type": "SoftwareApplication",
                "name": "train_bench",
                "softwareVersion": plan.revision or __version__,
            },
            *(
                {"@id": name, "@type": "File", "name": name, "contentSize": str(len(content[name]))}
                for name in names
            ),
        ],
    }
