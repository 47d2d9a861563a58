"""A plot as plotly's JSON. Colours are names of the page's style (`var(--kept)`), which knows light and dark.

Texts go in as they are: the page escapes what plotly would read as markup, but for `hovertemplate`, which is
always ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

KEPT, DROPPED, FAILED, ACCENT, MUTED = (
    f"var(--{name})" for name in ("kept", "dropped", "failed", "accent", "muted")
)
SERIES = tuple(f"var(--series-{number})" for number in range(8))
POWERS_OF_TWO = {"tick0": 0, "dtick": math.log10(2), "tickformat": "d"}
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "triangle-down")

Trace = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`about` describes the plot in words; `height` is in pixels."""

    name: str
    title: str
    about: str
    traces: Sequence[Trace]
    layout: Mapping[str, Any]
    height: int = 320

    def as_json(self) -> dict[str, Any]:
        """JSON for plotly."""
        return {"name": self.name, "data": list(self.traces), "layout": dict(self.layout)}


def marked(figure: Figure, verdict: str) -> Figure:
    """Add the verdict of a result that does not count to its figure, so that no copy of it lacks it."""
    mark = {
        "text": verdict,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "opacity": 0.25,
        "font": {"size": 36, "color": FAILED if verdict == "NOT VALID" else MUTED},
    }
    return replace(
        figure, title=f"{figure.title} ({verdict})", layout={**figure.layout, "annotations": [mark]}
    )


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": title}, **more}


def standing(run: Mapping[str, Any]) -> tuple[str, str]:
    """Status of a run for the score, and its colour."""
    if not run["counted"]:
        return "outside the window", DROPPED
    if not run["converged"]:
        return "not converged", FAILED
    return ("dropped", DROPPED) if run["dropped"] else ("kept", KEPT)


def by_standing(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[int]]]:
    """Status, colour and positions of the runs that share it."""
    groups: dict[tuple[str, str], list[int]] = {}
    for at, run in enumerate(runs):
        groups.setdefault(standing(run), []).append(at)
    return [(name, colour, members) for (name, colour), members in groups.items()]
