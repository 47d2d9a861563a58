"""Statistical power of reference convergence points, for a terminal. Takes the object that `rcp --certainty
--json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.core.digits import distinct
from train_bench.report.console import print_line


def show(described: Mapping[str, Any], console: Console) -> None:
    """A row for each point, a legend, then the law and the published entries."""
    unit, points = described["unit"], described["points"]
    less = f"{100 * points[0]['less']:g} %"
    print_line(
        console,
        f"{described['benchmark']} under {described['ruleset']}: a result has {described['runs']} runs, of which the "
        f"{described['drop']} fastest and slowest are dropped",
    )
    console.print(_table(points, unit, less))
    for line in (
        "false alarm: probability that a submission equal to the reference fails (type I error); in "
        "brackets the limit of infinitely many reference runs",
        "catches: smallest omitted share of training that is detected with a power of 80 %; in brackets "
        "the limit of infinitely many reference runs",
        (
            f"{less} less fails: power, the probability that a submission fails that omits {less} of the "
            "training"
        ),
        "more runs: further reference runs that bring the false alarm to 1 %, and the power to 80 %",
    ):
        print_line(console, line)
    for line in (*_limits(described, less), *_law(described), *_published(described)):
        print_line(console, line)


def sentence(point: Mapping[str, Any], benchmark: str) -> str:
    """Main result on a measured point, as a sentence."""
    return (
        "Against this point, a submission equal to the reference fails with a probability of "
        f"{_percent(point['false_alarm'])}, and one that omits {_percent(point['smallest_caught'])} of the "
        f"training with 80 %; train-bench rcp --certainty benchmark={benchmark} shows the effect of "
        "further reference runs."
    )


def _table(points: list[Mapping[str, Any]], unit: str, less: str) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    headings = (
        "batch size",
        "runs",
        f"mean {unit}s",
        "standard error",
        "lowest accepted",
        "false alarm",
        "catches",
    )
    for heading in (*headings, f"{less} less fails", "more runs for 1 %", "for 80 %"):
        table.add_column(heading, justify="right")
    table.add_column("", justify="left")
    for point in points:
        table.add_row(
            str(point["batch_size"]),
            str(point["count"]),
            f"{point['mean']:.6g}",
            f"{point['standard_error']:.3g}",
            f"{point['bound']:.6g}",
            f"{_percent(point['false_alarm'])} ({_percent(point['endless_false_alarm'])})",
            f"{_percent(point['smallest_caught'])} ({_percent(point['endless_caught'])})",
            _percent(point["power"]),
            _more(point["more_for_false_alarm"], _alarm_reachable(point)),
            _more(point["more_for_power"], _power_reachable(point)),
            "" if point["used"] else "pruned: the test interpolates its neighbours",
        )
    return table


def _limits(described: Mapping[str, Any], less: str) -> Iterator[str]:
    """Remarks where no number of reference runs is enough."""
    few = f"as a submission has {described['runs']} runs"
    alarms = [point for point in described["points"] if not _alarm_reachable(point)]
    if alarms:
        yield f"batch size {_listed(alarms)}: {few}, no number of reference runs brings the false alarm to 1 %"
    powers = [point for point in described["points"] if not _power_reachable(point)]
    if powers:
        yield (
            f"batch size {_listed(powers)}: {few}, no number of reference runs detects {less} less "
            "training with a power of 80 %"
        )


def _alarm_reachable(point: Mapping[str, Any]) -> bool:
    return point["more_for_false_alarm"] is not None or point["endless_false_alarm"] <= 0.01


def _power_reachable(point: Mapping[str, Any]) -> bool:
    return point["more_for_power"] is not None or point["endless_power"] >= 0.8


def _law(described: Mapping[str, Any]) -> list[str]:
    law = described["law"]
    if law is None:
        return ["law over the batch size: needs points at two batch sizes, there is one"]
    unit = "samples" if law["in_steps"] else f"{described['unit']}s"
    lines = [f"law over the batch size: {law['e_min']:.4g} (1 + B / {law['b_crit']:.4g}) {unit}"]
    off = [point for point in described["against_the_law"] if point["off"]]
    for point in off:
        ratio, low, high = distinct(point["ratio"], *point["tolerated"], decimals=3)
        lines.append(
            f"for review: the point at batch size {point['batch_size']} is {ratio} times the "
            f"law of the others, outside {low} to {high} (two standard deviations)"
        )
    if described["against_the_law"] and not off:
        lines.append("every point is within two standard deviations of the law of the others")
    return lines


def _published(described: Mapping[str, Any]) -> list[str]:
    published = described["published"]
    if published is None:
        return []
    median, lowest, highest = (
        distinct(published[name], 1.0, decimals=3)[0] for name in ("median", "lowest", "highest")
    )
    text = (
        f"{published['earlier']} of {published['entries']} published entries of {published['submitters']} "
        f"submitter(s) converge earlier than the points; entries need {median} times the "
        f"training of the points in the median ({lowest} to {highest})"
    )
    if published["suspicious"]:
        return [f"SUSPICIOUS: {text}. Their median is {_percent(1 - published['median'])} less."]
    return [text]


def _more(more: int | None, reachable: bool) -> str:
    if more is None:
        return "over 1000" if reachable else "no number"
    return str(more)


def _percent(share: float | None) -> str:
    return "over 90 %" if share is None else f"{100 * share:.1f} %"


def _listed(points: list[Mapping[str, Any]]) -> str:
    return ", ".join(str(point["batch_size"]) for point in points)
