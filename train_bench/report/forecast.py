"""A forecast for a terminal. Takes the object of `forecast --json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.report.console import print_line

LEAST_SURE = {
    "convergence": "the samples to the target",
    "pace": "the speed of the machine",
}


def show(forecast: Mapping[str, Any], console: Console) -> None:
    """The forecast, then its source and its assumptions."""
    for line in in_sentences(forecast):
        print_line(console, line)
    if forecast["advice"] is not None:
        show_advice(forecast["advice"], console)


def in_sentences(forecast: Mapping[str, Any]) -> Iterator[str]:
    """Sentences, the forecast first."""
    unit, runs, dropped = forecast["unit"], forecast["runs"], forecast["drop"]
    score = _interval(forecast["score"], "min")
    where = "" if forecast["ranks"] is None else f" on {forecast['ranks']} rank(s)"
    yield f"{forecast['benchmark']} at batch size {forecast['batch_size']}{where}: score of {runs} run(s) {score}"
    yield f"one run     {_interval(forecast['run'], 'min')}"
    if runs <= 2 * dropped:
        yield f"score       mean of all {runs} run(s): too few to drop {dropped} at either end"
    yield (
        f"convergence {_interval(forecast['position'], unit)}, {forecast['evaluations']} evaluation(s); "
        f"{forecast['convergence']['message']}"
    )
    yield f"pace        {forecast['pace']['message']}"
    shares = ", ".join(f"{part} {share * 100:.0f} %" for part, share in forecast["shares"].items())
    yield f"time        {shares}"
    deviations = forecast["deviation_of_ln_score"]
    least = max(deviations, key=lambda name: deviations[name])
    parts = ", ".join(f"{name} {value * 100:.1f} %" for name, value in deviations.items())
    yield f"least sure  {LEAST_SURE[least]} (standard deviation of the score by {parts})"
    if forecast["cost"] is not None:
        yield f"cost        of all {runs} run(s) {_interval(forecast['cost'], '')}"
    yield "note        times and samples to the target are of runs that reach it"
    if forecast["unfinished"] >= 0.005:
        share = forecast["unfinished"] * 100
        yield f"note        {share:.0f} % of the runs do not reach the target before the schedule ends"
    for note in forecast["pace"]["notes"]:
        yield f"note        {note}"


def _interval(value: Mapping[str, Any], unit: str) -> str:
    within = ", ".join(
        f"{level}: {_number(bounds[0])} to {_number(bounds[1])}"
        for level, bounds in value.items()
        if level != "median"
    )
    return f"{_number(value['median'])}{f' {unit}' if unit else ''} ({within.replace('%', ' %')})"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def show_advice(advice: Mapping[str, Any], console: Console) -> None:
    """A row for each batch size on each number of ranks."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    priced = advice["cheapest"] is not None
    for heading in ("ranks", "batch", "samples", "steps", "evals", "minutes", "+-", *["cost"] * priced):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", min_width=10)
    for row in advice["rows"]:
        table.add_row(
            str(row["ranks"]),
            str(row["batch_size"]),
            f"{row['samples']:.3g}",
            f"{row['steps']:.3g}",
            str(row["evaluations"]),
            _number(row["minutes"]),
            f"{row['log_error'] * 100:.0f} %",
            *([_number(row["cost"])] if priced else []),
            ", ".join(_marks(row, advice)),
        )
    console.print(table)
    for line in _law_lines(advice):
        print_line(console, line)


def _law_lines(advice: Mapping[str, Any]) -> Iterator[str]:
    law, beyond = advice["law"], advice["faster_beyond"]
    yield (
        f"law: {law['e_min']:.4g} (1 + B / {law['b_crit']:.4g}), residual of the points "
        f"{law['log_residual'] * 100:.1f} %; the scaling of a step with batch size and ranks is fitted to "
        "published systems"
    )
    yield (
        '+-: standard deviation of the training by the law; "point": deviation of the reference point\'s '
        "own runs from the law"
    )
    if any(row["where"] != "within" for row in advice["rows"]):
        yield "above points, below points: extrapolated"
    if beyond is not None:
        yield (
            f"extrapolated: batch size {beyond['batch_size']} on {beyond['ranks']} rank(s) would take "
            f"{_number(beyond['minutes'])} min, but no result passes the RCP test above the largest "
            "reference point"
        )


def _marks(row: Mapping[str, Any], advice: Mapping[str, Any]) -> Iterator[str]:
    if row["point"] is not None:
        yield f"point {round(100 * (row['point'] / row['training'] - 1)):+d} %"
    if row["where"] != "within":
        yield f"{row['where']} points"
    if row == advice["fastest"]:
        yield "fastest"
    if row == advice["cheapest"]:
        yield "cheapest"
