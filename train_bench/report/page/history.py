"""The history of scores for a page: the object of `history --json`, column by column, and the runs of the latest
results.

The page draws itself: its script makes plots and tables of what its filters leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from train_bench.report import history as history_text
from train_bench.report.findings import GRADES
from train_bench.report.page.facts import price_of
from train_bench.report.page.figure import Figure
from train_bench.report.page.several import SIZE

MOST_RUNS = 5_000
"""Largest number of runs on the page; those of the latest results are kept."""

SCORES = Figure(
    name="scores",
    title="Scores",
    about="A line joins valid results of the same task on the same system; of published rounds, entries of "
    "the same submitter, family and number of accelerators. Bars are 95 % confidence intervals. "
    "Crosses are NOT VALID, open circles INCOMPLETE, open diamonds a COPY of other logs; none of these is joined to a "
    "line, and "
    "results without a score, or with one that is not above 0, are below the axis.",
    traces=(),
    layout={"showlegend": True},
    height=440,
)
FACTORS = Figure(
    name="factors",
    title="Two factors",
    about="The latest valid result of each line. Over the size, lines join systems of one family of one "
    "submitter. Between time, cost and energy, the dashed line is the Pareto front of a task.",
    traces=(),
    layout={"showlegend": True},
    height=440,
)

OF_RUN = ("run", "seed", "status", "minutes", "standing", "findings", "file")


def data(
    history: Mapping[str, Any],
    runs_of: Callable[[Sequence[str]], Sequence[Sequence[Mapping[str, Any]]]],
    prices: Mapping[str, float],
    pages: Mapping[str, str],
) -> dict[str, Any]:
    """Input of the page's script. `runs_of` gives the runs of entries by their folders, `pages` the addresses of their
    own pages."""
    lines = history["lines"]
    points = [(number, point) for number, line in enumerate(lines) for point in line["points"]]
    texts: dict[str, int] = {}

    def text(sentences: Sequence[str]) -> int:
        return texts.setdefault(" ".join(sentences), len(texts))

    columns = {
        name: [point[name] for _, point in points]
        for name in (
            *(
                "folder",
                "began",
                "ruleset",
                "batch_size",
                "revision",
                "host",
                "runs",
                "runs_required",
                "failed",
            ),
            *(
                "score_minutes",
                "low_minutes",
                "high_minutes",
                "joules",
                "valid",
                "state",
                "copy_of",
                "joined",
            ),
        )
    }
    families: dict[tuple[Any, ...], int] = {}
    return {
        "lines": [_line(line, families) for line in lines],
        "points": {
            **columns,
            "line": [number for number, _ in points],
            "page": [pages.get(point["folder"]) for _, point in points],
            "cost": [_cost(point, prices) for _, point in points],
            "reasons": [text(point["reasons"]) for _, point in points],
            "versions": [text(point["other_versions"]) for _, point in points],
        },
        "runs": _runs([point for _, point in points], runs_of, text),
        "texts": list(texts),
        "priced": bool(prices),
    }


def _line(line: Mapping[str, Any], families: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    system = line["family"] or SIZE.sub("", line["system"] or "")
    of_family = ("kind", "benchmark", "target", "submitter", "division", "launcher", "device", "precision")
    family = (*(line[name] for name in of_family), line["ruleset"] if line["family"] else None, system)
    return {
        "title": history_text.title(line),
        "kind": line["kind"],
        "benchmark": line["variant"] or line["benchmark"],
        "task": f"{line['benchmark']}, {line['target']}",
        "submitter": line["submitter"],
        "system": history_text.system(line) or "unknown",
        "size": line["accelerators"] or line["ranks"],
        "nodes": line["nodes"],
        "family": families.setdefault(family, len(families)),
    }


def _cost(point: Mapping[str, Any], prices: Mapping[str, float]) -> float | None:
    price, minutes = price_of(point["system"], prices), point["score_minutes"]
    return None if price is None or minutes is None else price * minutes / 60


def _runs(
    points: Sequence[Mapping[str, Any]],
    runs_of: Callable[[Sequence[str]], Sequence[Sequence[Mapping[str, Any]]]],
    text: Callable[[Sequence[str]], int],
) -> dict[int, list[list[Any]]]:
    """The runs of the latest points by the number of the point."""
    latest = sorted(range(len(points)), key=lambda at: points[at]["began"] or "", reverse=True)
    there = 0
    for count, at in enumerate(latest):
        there += points[at]["runs"]
        if there > MOST_RUNS:
            latest = latest[:count]
            break
    runs = runs_of([points[at]["folder"] for at in latest])
    return {at: [_run(run, text) for run in of_it] for at, of_it in zip(latest, runs, strict=True)}


def _run(run: Mapping[str, Any], text: Callable[[Sequence[str]], int]) -> list[Any]:
    standing = "kept" if run["counted"] and run["converged"] and not run["dropped"] else "left out"
    found = [
        f"{GRADES.get(grade, grade)} [{check}] {message}{f' ({count} times)' if count > 1 else ''}"
        for grade, check, count, message in json.loads(run["findings"])
    ]
    row = (run["run"], run["seed"], run["status"], run["minutes"], standing, text(found), run["file"])
    return list(row)
