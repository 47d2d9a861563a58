"""Time plots: phases of each run, spread of the runs, and time-to-train as its two factors."""

from __future__ import annotations

from train_bench.report.page.facts import Entry, TimeUnit
from train_bench.report.page.figure import ACCENT, MUTED, SERIES, Figure, Trace, axis, by_standing

PHASES = {
    "init": ("initialisation, before the clock", MUTED),
    "data": ("opening the data", SERIES[4]),
    "train": ("training blocks", SERIES[0]),
    "evaluation": ("evaluation", SERIES[1]),
    "other": ("the rest", SERIES[3]),
}


def where(entry: Entry) -> Figure | None:
    """Stacked bars of phases, one per run; None if no clock ever started."""
    runs, phases, unit = entry.result["runs"], entry.phases, entry.unit
    if not any(phases):
        return None
    labels = [f"run {run['index']}" for run in runs]
    traces: list[Trace] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": [unit.of(getattr(phase, field)) if phase else None for phase in phases],
            "marker": {"color": colour},
            "hovertemplate": f"%{{y}}: {name} %{{x:.4g}} {unit.symbol}<extra></extra>",
        }
        for field, (name, colour) in PHASES.items()
    ]
    apart = all(phase is None or phase.evaluation is not None for phase in phases)
    return Figure(
        name="phases",
        title="Where the time went",
        about=f"{unit.name.capitalize()} of each run, by phase."
        + (
            ""
            if apart
            else " Some logs have no eval_start; their evaluations are part of the training blocks."
        ),
        traces=traces,
        layout={
            "barmode": "stack",
            "showlegend": True,
            "xaxis": axis(unit.name),
            "yaxis": {"autorange": "reversed", "type": "category"},
        },
        height=150 + 20 * len(runs),
    )


def spread(entry: Entry) -> Figure:
    """Time-to-train of every run, the mean of the kept ones and the confidence interval."""
    runs, result, unit = entry.result["runs"], entry.result, entry.unit
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [runs[at]["index"] for at in members],
            "y": [unit.of(runs[at]["minutes"]) for at in members],
            "marker": {
                "color": colour,
                "size": 9,
                "symbol": "circle" if name == "kept" else "x-thin-open",
                "line": {"width": 2, "color": colour},
            },
            "hovertemplate": f"run %{{x}}, {name}: %{{y:.5g}} {unit.symbol}<extra></extra>",
        }
        for name, colour, members in by_standing(runs)
    ]
    ends = [
        min((run["index"] for run in runs), default=0) - 0.5,
        max((run["index"] for run in runs), default=0) + 0.5,
    ]
    if result["olympic_minutes"] is not None:
        mean = result["olympic_minutes"]
        name = f"olympic mean {unit.of(mean):.4g} {unit.symbol}"
        traces.append(_level(ends, mean, unit, name, "solid", ACCENT))
    if result["score_minutes"] is not None and result["score_minutes"] != result["olympic_minutes"]:
        score = result["score_minutes"]
        name = f"score {unit.of(score):.4g} {unit.symbol}, with the RCP factor"
        traces.append(_level(ends, score, unit, name, "dash", ACCENT))
    for bound, what in zip(result["ci95_minutes"] or (), ("lower", "upper"), strict=False):
        name = f"{what} end of the 95 % confidence interval of the score"
        traces.append(_level(ends, bound, unit, name, "dot", MUTED))
    return Figure(
        name="spread",
        title="Spread of the runs",
        about="Time-to-train of every run. Crosses are left out of the olympic mean, the dotted lines are "
        "the 95 % confidence interval of the score, which is the olympic mean times the RCP factor.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("run", tickformat="d", tick0=0, dtick=max(1, len(runs) // 10), range=ends),
            "yaxis": axis(unit.name),
        },
    )


def _level(ends: list[float], minutes: float, unit: TimeUnit, name: str, dash: str, colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": ends,
        "y": [unit.of(minutes)] * 2,
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "showlegend": dash != "dot",
        "hovertemplate": f"{name} (%{{y:.5g}} {unit.symbol})<extra></extra>",
    }


def factors(entry: Entry) -> Figure | None:
    """Samples to the target and samples per second of every run; None unless the logs have both."""
    runs, result = entry.result["runs"], entry.result
    known = [run for run in runs if run["samples"] and run["samples_per_second"]]
    if not known:
        return None
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [known[at]["samples"] for at in members],
            "y": [known[at]["samples_per_second"] for at in members],
            "text": [f"run {known[at]['index']}" for at in members],
            "marker": {"color": colour, "size": 8},
            "hovertemplate": f"%{{text}}, {name}: %{{x:,.0f}} samples at %{{y:,.1f}} per second<extra></extra>",
        }
        for name, colour, members in by_standing(known)
    ]
    if result["olympic_minutes"]:
        unit = entry.unit
        far = [min(run["samples"] for run in known) * 0.97, max(run["samples"] for run in known) * 1.03]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"takes {unit.of(result['olympic_minutes']):.4g} {unit.symbol}",
                "x": far,
                "y": [samples / (result["olympic_minutes"] * 60) for samples in far],
                "line": {"color": ACCENT, "width": 1.5, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    return Figure(
        name="factors",
        title="The two factors of time-to-train",
        about="Samples to the target and samples per second of each run. Runs above the dashed line are "
        "faster than the olympic mean.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("samples to the target"),
            "yaxis": axis("samples per second"),
        },
    )
