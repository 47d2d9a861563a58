"""The plots of the page of several profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train_bench.report.page.figure import ACCENT, MUTED, SERIES, Figure, axis

MOST_TYPES = 30


def figures(content: Mapping[str, Any]) -> list[Figure]:
    """All figures of the page."""
    return [_dominance(content), _tree(content), _classes(content)]


def _dominance(content: Mapping[str, Any]) -> Figure:
    return Figure(
        name="dominance",
        title="Types of operators",
        about=(
            "Cumulative share of the operators' time, by number of operator types, the most expensive first."
        ),
        traces=[
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": row["name"],
                "x": list(range(1, 1 + min(MOST_TYPES, len(row["dominance"])))),
                "y": [one["cumulative"] * 100 for one in row["dominance"][:MOST_TYPES]],
                "text": [one["name"] for one in row["dominance"][:MOST_TYPES]],
                "line": {
                    "color": SERIES[at % len(SERIES)],
                    "dash": ("solid", "dot", "dash")[at // len(SERIES) % 3],
                },
                "hovertemplate": "%{text}: %{y:.1f} %<extra></extra>",
            }
            for at, row in enumerate(content["profiles"])
        ],
        layout={
            "showlegend": True,
            "xaxis": axis("types of operators"),
            "yaxis": axis("percent of the operators' time", range=[0, 101]),
        },
        height=420,
    )


def _tree(content: Mapping[str, Any]) -> Figure:
    """Dendrogram: an angle for each join, as far right as the distance of its members."""
    rows = {name: number for number, name in enumerate(content["order"])}
    places = [(0.0, float(rows[row["name"]])) for row in content["profiles"]]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for join in content["joins"]:
        (left, low), (right, high) = places[join["left"]], places[join["right"]]
        xs += [left, join["distance"], join["distance"], right, None]
        ys += [low, low, high, high, None]
        places.append((join["distance"], (low + high) / 2))
    return Figure(
        name="tree",
        title="Similarity",
        about="Average-linkage clustering by the cosine distance between the shares of operator classes in "
        "the time.",
        traces=[
            {
                "type": "scatter",
                "mode": "lines",
                "x": xs,
                "y": ys,
                "line": {"color": ACCENT},
                "hoverinfo": "skip",
            }
        ],
        layout={
            "xaxis": axis("distance", rangemode="tozero"),
            "yaxis": {"tickvals": list(rows.values()), "ticktext": list(rows), "zeroline": False},
        },
        height=130 + 26 * len(rows),
    )


def _classes(content: Mapping[str, Any]) -> Figure:
    kinds = list(content["profiles"][0]["classes"])
    names = [row["name"] for row in content["profiles"]]
    return Figure(
        name="classes",
        title="Classes of operators",
        about="Share of each operator class in the operators' time.",
        traces=[
            {
                "type": "bar",
                "orientation": "h",
                "name": kind,
                "y": names,
                "x": [row["classes"][kind] * 100 for row in content["profiles"]],
                "marker": {"color": SERIES[at] if at < len(SERIES) else MUTED},
                "hovertemplate": f"%{{y}}, {kind}: %{{x:.1f}} %<extra></extra>",
            }
            for at, kind in enumerate(kinds)
        ],
        layout={
            "barmode": "stack",
            "showlegend": True,
            "xaxis": axis("percent of the operators' time"),
            "yaxis": {"type": "category", "autorange": "reversed"},
        },
        height=180 + 26 * len(names),
    )
