"""The plots of the page of served weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train_bench.report.page.figure import ACCENT, FAILED, KEPT, SERIES, Figure, axis


def figures(content: Mapping[str, Any]) -> list[Figure]:
    """Latencies of the scenarios that have some of their own, and the 99th percentile over the rate of Server."""
    drawn = [_latencies(content)]
    drawn += [_rates(row["tried"], row["rate"]) for row in content["scenarios"] if row["tried"]]
    return drawn


def _latencies(content: Mapping[str, Any]) -> Figure:
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": row["scenario"],
            "line": {"shape": "hv", "width": 1.5, "color": SERIES[number]},
            "x": row["latencies"]["edges_ms"][:-1],
            "y": [100 * count / sum(row["latencies"]["counts"]) for count in row["latencies"]["counts"]],
            "hovertemplate": "from %{x:.3g} ms: %{y:.2f} %<br>%{fullData.name}<extra></extra>",
        }
        for number, row in enumerate(content["scenarios"])
        if row["latencies"] is not None and row["scenario"] != "Offline"
    ]
    return Figure(
        name="latencies",
        title="Latencies",
        about="Latencies of all samples with the weights of all runs, in per cent; ten bins to a factor of ten. They "
        "count from when a query was scheduled.",
        traces=traces,
        layout={
            "xaxis": axis("latency, ms", type="log"),
            "yaxis": axis("per cent of the samples", rangemode="tozero"),
            "showlegend": True,
        },
    )


def _rates(tried: list[Mapping[str, Any]], rate: float) -> Figure:
    traces = []
    for valid, name, colour in ((True, "VALID", KEPT), (False, "INVALID", FAILED)):
        chosen = [one for one in tried if one["valid"] is valid and one.get("p99_ms")]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [one["rate"] for one in chosen],
                "y": [one["p99_ms"] for one in chosen],
                "marker": {"size": 7, "color": colour, "symbol": "circle" if valid else "x"},
                "hovertemplate": "%{x:.4g} samples/s: %{y:.4g} ms<br>%{fullData.name}<extra></extra>",
            }
        )
    return Figure(
        name="rates",
        title="Server: 99th percentile over the rate",
        about="Every test that looked for the rate of Server, by its verdict. The line is the rate that the weights of "
        "all runs hold.",
        traces=traces,
        layout={
            "xaxis": axis("arriving samples/s"),
            "yaxis": axis("99th percentile latency, ms", type="log"),
            "showlegend": True,
            "shapes": [
                {
                    "type": "line",
                    "x0": rate,
                    "x1": rate,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "line": {"color": ACCENT, "width": 1.5, "dash": "dash"},
                }
            ],
        },
    )
