"""Quality against time: one curve per run and metric, and the target as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from train_bench.quality import Threshold
from train_bench.report.page.facts import Entry, TimeUnit
from train_bench.report.page.figure import ACCENT, SERIES, Figure, Trace, axis, standing
from train_bench.report.score_table import validity


def figures(entry: Entry) -> list[Figure]:
    """One figure per metric of the target."""
    return [_figure(entry, threshold) for threshold in entry.thresholds]


def together(entries: Sequence[Entry], letters: Mapping[str, str]) -> list[Figure]:
    """Entries of one benchmark in one figure per metric, a colour each; `letters` are those of a table of campaigns, by
    anchor."""
    return [_together(entries, threshold, letters) for threshold in entries[0].thresholds]


def _figure(entry: Entry, threshold: Threshold) -> Figure:
    traces: list[Trace] = []
    for at, (run, curve) in enumerate(zip(entry.result["runs"], entry.curves, strict=True)):
        what, colour = standing(run)
        name = f"run {run['index']}"
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": list(map(entry.unit.of, curve.minutes)),
                "y": curve.metrics[threshold.metric],
                "line": {"width": 1.5, "color": colour, "dash": "solid" if what == "kept" else "dot"},
                "marker": {"size": 4, "color": colour},
                "hovertemplate": f"{_hover(entry.unit)}<br>%{{fullData.name}}, {what}<extra></extra>",
                "meta": {"run": at},
            }
        )
    longest = max((max(curve.minutes, default=0.0) for curve in entry.curves), default=0.0)
    return Figure(
        name=f"quality {threshold.metric}",
        title=f"Quality against time: {threshold.metric}",
        about=f"{threshold.metric} at every evaluation of every run, over {entry.unit.name} since run_start. "
        f"The target is {threshold}. Dotted runs are not part of the mean.",
        traces=[*traces, _target(threshold, entry.unit.of(longest))],
        layout=_layout(threshold, entry.unit),
    )


def name_of(entry: Entry) -> str:
    """Name and round of an entry, and its verdict if it does not count."""
    verdict = validity(entry.result)
    return f"{entry.name} ({entry.round}{'' if verdict == 'VALID' else f', {verdict}'})"


def _together(entries: Sequence[Entry], threshold: Threshold, letters: Mapping[str, str]) -> Figure:
    unit = entries[0].unit
    traces: list[Trace] = []
    for number, entry in enumerate(entries):
        colour = SERIES[number % len(SERIES)]
        for at, curve in enumerate(entry.curves):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": letters.get(entry.anchor) or name_of(entry),
                    "legendgroup": entry.anchor,
                    "showlegend": at == 0,
                    "x": list(map(entry.unit.of, curve.minutes)),
                    "y": curve.metrics.get(threshold.metric, ()),
                    "line": {"width": 1.2, "color": colour},
                    "hovertemplate": f"{_hover(entry.unit)}<br>%{{fullData.name}}<extra></extra>",
                    "meta": {"entry": entry.anchor},
                }
            )
    longest = max(
        (max(curve.minutes, default=0.0) for entry in entries for curve in entry.curves), default=0.0
    )
    return Figure(
        name=f"together {entries[0].result['benchmark']} {threshold.metric}",
        title=f"{entries[0].result['benchmark']}: {threshold.metric} against time",
        about=f"Every run of {len(entries)} entries; the target of the first is {threshold}.",
        traces=[*traces, _target(threshold, unit.of(longest))],
        layout={**_layout(threshold, unit), "showlegend": True},
        height=320 + 20 * len(entries),
    )


def _target(threshold: Threshold, longest: float | None) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"target {threshold}",
        "showlegend": False,
        "x": [0, longest],
        "y": [threshold.value, threshold.value],
        "line": {"color": ACCENT, "width": 1.5, "dash": "dash"},
        "hovertemplate": "target %{y}<extra></extra>",
    }


def _layout(threshold: Threshold, unit: TimeUnit) -> dict[str, object]:
    return {
        "xaxis": axis(f"{unit.name} since run_start", rangemode="tozero"),
        "yaxis": axis(threshold.metric),
    }


def _hover(unit: TimeUnit) -> str:
    return f"%{{y:.5g}} at %{{x:.4g}} {unit.symbol}"
