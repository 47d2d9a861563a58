"""The plots of a profile's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train_bench.report.page.figure import ACCENT, MUTED, SERIES, Figure, axis

COLOURS = {
    "bound": SERIES[2],
    "inefficiency": SERIES[0],
    "gaps": SERIES[7],
    "input": SERIES[1],
    "communication": SERIES[3],
    "ranks": SERIES[5],
    "own": SERIES[6],
    "evaluation": SERIES[4],
    "rest": MUTED,
}


def figures(content: Mapping[str, Any]) -> list[Figure]:
    """All figures of the page."""
    return [_waterfall(content), _icicle(content), _classes(content)]


def by_time(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Modules by time, the slowest first."""
    return sorted(
        layers, key=lambda layer: -(layer["window_forward_seconds"] + layer["window_backward_seconds"])
    )


def _waterfall(content: Mapping[str, Any]) -> Figure:
    rows = [row for row in content["waterfall"] if row["share"] >= 0.0005]
    bases, reached = [], 0.0
    for row in rows:
        bases.append(reached)
        reached += row["share"] * 100
    return Figure(
        name="waterfall",
        title="Where the window goes",
        about="Waterfall from compute at the measured peaks to the whole window, in percent; the parts add "
        "up to 100.",
        traces=[
            {
                "type": "bar",
                "orientation": "h",
                "y": [row["name"] for row in rows],
                "x": [row["share"] * 100 for row in rows],
                "base": bases,
                "customdata": [row["seconds"] for row in rows],
                "marker": {"color": [COLOURS[row["kind"]] for row in rows]},
                "hovertemplate": "%{y}: %{customdata:.4g} s, %{x:.1f} %<extra></extra>",
            }
        ],
        layout={
            "xaxis": axis("percent of the window", range=[0, 100]),
            "yaxis": {"autorange": "reversed", "type": "category"},
        },
        height=130 + 22 * len(rows),
    )


def _icicle(content: Mapping[str, Any]) -> Figure:
    """Icicle plot: a rectangle for each module, as wide as its time with its submodules."""
    own = {
        layer["name"]: 1000 * (layer["window_forward_seconds"] + layer["window_backward_seconds"])
        for layer in content["layers"]
    }
    names = dict.fromkeys([*own])
    for name in own:
        parts = name.split(".")
        names |= dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts)))
    totals = {
        name: sum(value for other, value in own.items() if other == name or other.startswith(f"{name}."))
        for name in names
    }
    return Figure(
        name="icicle",
        title="Modules",
        about=(
            "Forward and backward pass by module; a width is the share of the window of a module with its "
            "submodules."
        ),
        traces=[
            {
                "type": "icicle",
                "ids": list(names),
                "labels": [name.rpartition(".")[2] or name for name in names],
                "parents": [name.rpartition(".")[0] for name in names],
                "values": list(totals.values()),
                "branchvalues": "total",
                "tiling": {"orientation": "v"},
                "hovertemplate": "%{id}: %{value:.4g} ms<extra></extra>",
            }
        ],
        layout={},
        height=420,
    )


def _classes(content: Mapping[str, Any]) -> Figure:
    """Bars by class, a colour for each phase."""
    phases = list(dict.fromkeys(row["phase"] for row in content["classes"]))
    colours = dict(zip(phases, (SERIES[0], SERIES[1], ACCENT), strict=False))
    return Figure(
        name="classes",
        title="Classes of operators",
        about="Seconds of the window by class of operator, in the forward pass, the backward pass and the optimizer.",
        traces=[
            {
                "type": "bar",
                "orientation": "h",
                "name": phase,
                "y": [row["class"] for row in content["classes"] if row["phase"] == phase],
                "x": [row["seconds"] for row in content["classes"] if row["phase"] == phase],
                "marker": {"color": colours[phase]},
                "hovertemplate": f"%{{y}}, {phase}: %{{x:.4g}} s<extra></extra>",
            }
            for phase in phases
        ],
        layout={
            "barmode": "stack",
            "showlegend": True,
            "xaxis": axis("seconds of the window"),
            "yaxis": {"type": "category"},
        },
        height=420,
    )
