"""RCP plot: training of the runs and the reference convergence points, over the batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train_bench.report.page.facts import Entry
from train_bench.report.page.figure import ACCENT, KEPT, MUTED, POWERS_OF_TWO, Figure, Trace, axis


def figure(entry: Entry) -> Figure | None:
    """Points, their interpolated mean, both bounds, and the runs; None without points."""
    result, points = entry.result, entry.allowed["reference_points"]
    if not points:
        return None
    used = [point for point in points if point["used"]]
    traces = [
        _curve(used, "mean", "reference mean", "solid"),
        _curve(used, "bound", "lowest accepted mean", "dot"),
        _curve(points, "upper_bound", "highest accepted mean", "dashdot"),
        *_pruned([point for point in points if not point["used"]]),
        *_runs(result),
        *_verdict(result),
    ]
    unit = f"{result['unit']}s"
    return Figure(
        name="convergence",
        title=f"{unit.capitalize()} to converge against the reference",
        about=f"{unit.capitalize()} to the target over the global batch size. Between two points the "
        "reference is interpolated. A submission whose mean is below the lower bound converges too "
        "fast and fails; above the upper bound it converges too slowly, which is for review. RCP "
        f"{result['rcp']['verdict']}: {result['rcp']['message']}.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("global batch size", type="log", **POWERS_OF_TWO),
            "yaxis": axis(f"{unit} to converge", rangemode="tozero"),
        },
        height=360,
    )


def _curve(points: Sequence[Mapping[str, Any]], field: str, name: str, dash: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [point["batch_size"] for point in points],
        "y": [point[field] for point in points],
        "text": [f"{point['count']} runs" for point in points],
        "line": {"color": MUTED, "width": 1.5, "dash": dash},
        "marker": {"size": 6 if field == "mean" else 4},
        "hovertemplate": f"{name} %{{y:.5g}} at batch size %{{x}} (%{{text}})<extra></extra>",
    }


def _pruned(points: Sequence[Mapping[str, Any]]) -> list[Trace]:
    if not points:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "pruned point",
            "x": [point["batch_size"] for point in points],
            "y": [point["mean"] for point in points],
            "marker": {"color": MUTED, "size": 7, "symbol": "circle-open"},
            "hovertemplate": "pruned point %{y:.5g} at batch size %{x}<extra></extra>",
        }
    ]


def _runs(result: Mapping[str, Any]) -> list[Trace]:
    converged = [run for run in result["runs"] if run["convergence"] is not None]
    if result["global_batch_size"] is None or not converged:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "runs",
            "x": [result["global_batch_size"]] * len(converged),
            "y": [run["convergence"] for run in converged],
            "text": [f"run {run['index']}" for run in converged],
            "marker": {"color": KEPT, "size": 6, "opacity": 0.6},
            "hovertemplate": "%{text}: %{y:.5g}<extra></extra>",
        }
    ]


def _verdict(result: Mapping[str, Any]) -> list[Trace]:
    """Marker of the RCP comparison: the submission's mean and the applied bound."""
    rcp = result["rcp"]
    marks = (
        ("mean of the runs", "submission_mean", "diamond"),
        ("applied bound", "bound", "line-ew-open"),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [result["global_batch_size"]],
            "y": [rcp[field]],
            "marker": {"color": ACCENT, "size": 11, "symbol": symbol, "line": {"width": 2, "color": ACCENT}},
            "hovertemplate": f"{name} %{{y:.5g}}<extra></extra>",
        }
        for name, field, symbol in marks
        if rcp[field] is not None and result["global_batch_size"] is not None
    ]
