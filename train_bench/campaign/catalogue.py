"""Catalogue of the campaigns below a folder: their numbers, dates, verdicts and scores, from the files that campaigns
leave. Nothing is judged again: a verdict is one of `score.json` as it stands, and none where that file is about other
logs than those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.finite_number import finite_number
from train_bench.core.job import jobs_of
from train_bench.judge.locate import RESULT
from train_bench.judge.state import INCOMPLETE, state_of

MOST_MINUTES = 1e9
"""Minutes of a score that may be shown; a third-party file may state any."""

PLACES = ("*/plan.json", "*/*/plan.json", "results/*/*/plan.json")
"""Plans below a working folder: of `output=DIR`, of the default folders, of pairs and sweeps."""


SERVED = ("*/serving.json", "*/*/serving.json", "results/*/*/serving.json")
"""Results of `train-bench serve` below a working folder, which lie beside their campaigns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A campaign by its files. `number` counts from the oldest, 1; `valid` and `score_minutes` are those of its
    `score.json`, None without one, and where runs are missing or logs have other digests than it names. `state` is
    that of the result; without a score, `incomplete` if runs are missing, else None."""

    folder: Path
    created: str
    benchmark: str
    runs: int
    finished: int
    valid: bool | None = None
    state: str | None = None
    score_minutes: float | None = None
    number: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self) | {"folder": str(self.folder)}


def find_campaigns(top: Path, *, verdicts: bool = True) -> list[Listed]:
    """Campaigns below a working folder, numbered by date; without `verdicts`, no log is read."""
    there = {path.parent for place in PLACES for path in top.glob(place)}
    listed = [one for folder in there if (one := describe_campaign(folder, verdict=verdicts)) is not None]
    listed.sort(key=lambda one: (one.created, str(one.folder)))
    return [replace(one, number=number) for number, one in enumerate(listed, start=1)]


def find_served(top: Path) -> list[Path]:
    """Folders of results of `train-bench serve` below a working folder. They keep no verdict."""
    return sorted({path.parent for place in SERVED for path in top.glob(place)})


def describe_campaign(folder: Path, *, verdict: bool = True) -> Listed | None:
    """A campaign by its files, which may be anybody's; None without a plan of runs that can be read."""
    plan = files.read_object(folder / "plan.json")
    created, benchmark = plan.get("created"), plan.get("variant") or plan.get("benchmark")
    jobs = jobs_of(plan)
    if not (isinstance(created, str) and isinstance(benchmark, str) and jobs):
        return None
    if jobs[0].get("work", "train") != "train":  # a profile or another piece of work, and no campaign
        return None
    runs = len(jobs)
    score = files.read_object(folder / "score.json") if verdict else {}
    score = score if _is_of_these_logs(score, folder, runs) else {}
    valid, reasons = score.get("valid"), score.get("reasons")
    finished = sum((folder / f"result_{index}.txt").is_file() for index in range(runs))
    state = INCOMPLETE if finished < runs else None
    if isinstance(valid, bool):
        state = state_of(valid, reasons if isinstance(reasons, list) else ())
    return Listed(
        folder=folder,
        created=created,
        benchmark=benchmark,
        runs=runs,
        finished=finished,
        valid=valid if isinstance(valid, bool) else None,
        state=state,
        score_minutes=_minutes(score.get("score_minutes")),
    )


def _is_of_these_logs(score: Mapping[str, Any], folder: Path, runs: int) -> bool:
    """True if a score was made of the logs that are there, all of those planned."""
    listed = score.get("runs")
    if not isinstance(listed, list) or not all(isinstance(run, dict) for run in listed):
        return False
    named = {str(run.get("file")): run.get("sha256") for run in listed}
    there = {path.name for path in folder.iterdir() if RESULT.fullmatch(path.name)}
    if len(listed) != runs or named.keys() != there:
        return False
    try:
        return all(files.digest(folder / name) == digest for name, digest in named.items())
    except OSError:
        return False


def _minutes(value: Any) -> float | None:
    minutes = finite_number(value, below=MOST_MINUTES)
    return None if minutes is None else float(minutes)
