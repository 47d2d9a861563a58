"""Training that a served result shows, and copies among its runs: each has weights, a log and traces of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.errors import LogError, RequestError
from train_bench.judge.entry import judge_entry
from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.judge.loadgen_folders import TRAINING_LOG
from train_bench.judge.locate import Location
from train_bench.plan import discover
from train_bench.serving.checks import CheckResult
from train_bench.serving.loadgen_log import PERFORMANCE, LoadGenTest
from train_bench.serving.served import Served

SAME_SHAPE = 1e-3
"""Distance of the latencies of two tests from a line, as a share of their standard deviation, below which one is the
other, scaled and moved. Those of a system that only sleeps, 51,541 samples in batches of 32, are at 9e-3."""

FEW_SAMPLES = 10
"""Samples, or different latencies, below which those of two tests may lie on a line."""


def check_training(root: Path, served: Served) -> Iterator[CheckResult]:
    """The copied logs of training, judged as an entry by its rules and reference convergence points."""
    logs = [root / f"run_{run.index}" / TRAINING_LOG for run in served.runs]
    there = tuple(path for path in dict.fromkeys(logs) if path.is_file())
    if not there:
        return
    location = Location(
        folder=root,
        files=there,
        plan={},
        ruleset=served.training_ruleset,
        submitter=None,
        system=None,
        benchmark=served.benchmark,
    )
    try:
        judged = judge_entry(location, rcp_folders=discover.rcp_folders())
    except (LogError, RequestError) as error:
        yield "training", BREAKS, f"The training cannot be judged: {error}"
        return
    for record, verdict in zip(judged.records, judged.verdicts, strict=True):
        name = Path(record.file).parent.name
        for one in verdict.findings:
            if one.grade in (BREAKS, REVIEW):
                yield "training", one.grade, f"Training of {name} [{one.check}]: {one.message}"
    for one in judged.findings:
        if one.grade in (BREAKS, REVIEW) and one.check != "plan":  # it stays with the campaign
            yield "training", one.grade, f"Training [{one.check}]: {one.message}"
    whole = len(there) >= judged.score.runs_required
    if whole and not judged.score.valid:
        yield "training", BREAKS, f"The training is not a valid result: {' '.join(judged.score.reasons)}"


def check_copies(
    root: Path,
    served: Served,
    tests: Sequence[LoadGenTest],
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[CheckResult]:
    """Weights and traces that several runs share, whether as they are or scaled, and intervals without width."""
    first: dict[str, int] = {}
    for run in served.runs:
        for digest in run.weights.values():
            other = first.setdefault(digest, run.index)
            if other != run.index:
                yield (
                    "copies",
                    BREAKS,
                    f"Runs {other} and {run.index} have the same weights; every run trains its own.",
                )
    yield from _check_traces(root, served, tests)
    for row in rows:
        numbers = [value for value in row["values"].values() if value is not None]
        if len(numbers) > 1 and len({*numbers}) == 1:
            yield (
                "copies",
                REVIEW,
                f"{row['scenario']}: {len(numbers)} runs have the metric {numbers[0]:.6g} "
                "to the last digit, so that its interval has no width; measurements differ.",
            )


def _check_traces(root: Path, served: Served, tests: Sequence[LoadGenTest]) -> Iterator[CheckResult]:
    measured: dict[str, list[LoadGenTest]] = {}
    for test in tests:
        long = test.queries is not None and len(test.queries) >= FEW_SAMPLES
        if test.mode == PERFORMANCE and long and str(test.folder.relative_to(root)) in served.tests:
            measured.setdefault(test.scenario, []).append(test)
    for alike in measured.values():
        for place, test in enumerate(alike):
            for other in alike[:place]:
                if _same_shape(other, test):
                    yield (
                        "copies",
                        BREAKS,
                        f"{test.folder.relative_to(root)} has the latencies of {other.folder.relative_to(root)}, "
                        "as they are or on a line with them; those of two tests differ.",
                    )
                    break


def _same_shape(one: LoadGenTest, other: LoadGenTest) -> bool:
    """True if the latencies of one test are those of the other, or a multiple of them plus a constant."""
    assert one.queries is not None and other.queries is not None
    count = min(len(one.queries), len(other.queries))
    left, right = (
        np.asarray(test.queries.latency_ns[:count], float) for test in (one, other) if test.queries
    )
    if min(len(np.unique(left)), len(np.unique(right))) < FEW_SAMPLES:
        return bool((left == right).all())
    centred, line = left - left.mean(), right - right.mean()
    slope = (centred @ line) / (centred @ centred)
    return bool(slope > 0 and (line - slope * centred).std() < SAME_SHAPE * line.std())
