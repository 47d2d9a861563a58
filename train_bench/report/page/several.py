"""Several entries beside each other: ratios, scaling over system size, change over rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from train_bench.report.page import quality
from train_bench.report.page.facts import Entry
from train_bench.report.page.figure import MUTED, POWERS_OF_TWO, SERIES, SYMBOLS, Figure, Trace, axis


def ratios(entries: Sequence[Entry]) -> dict[str, float | None]:
    """Score over that of the first entry of the same benchmark that has one, by anchor."""
    first: dict[str, float] = {}
    found: dict[str, float | None] = {}
    for entry in entries:
        if entry.minutes:
            first.setdefault(entry.told["benchmark"], entry.minutes)
        found[entry.anchor] = entry.minutes / first[entry.told["benchmark"]] if entry.minutes else None
    return found


def figures(entries: Sequence[Entry]) -> list[Figure]:
    """Those that the entries have something to show in."""
    shown = [scaling(entries), rounds(entries)]
    alike = [members for members in _by_benchmark(entries).values() if len(members) > 1]
    return [
        *(figure for figure in shown if figure is not None),
        *(figure for members in alike for figure in quality.together(members)),
    ]


def scaling(entries: Sequence[Entry]) -> Figure | None:
    """Score over size, both logarithmic, with ideal scaling from the smallest system of each benchmark. None
    where all systems are of one size."""
    if len({entry.size for entry in entries if entry.size and entry.minutes}) < 2:
        return None
    traces: list[Trace] = []
    for number, (benchmark, members) in enumerate(_by_benchmark(entries).items()):
        sized = sorted(
            ((one.size, one.minutes, one) for one in members if one.size and one.minutes),
            key=lambda item: item[:2],
        )
        if not sized:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(sized) > 1 else "markers",
                "name": benchmark,
                "x": [size for size, _, _ in sized],
                "y": [minutes for _, minutes, _ in sized],
                "text": [f"{one.name} ({one.round})" for _, _, one in sized],
                "line": {"width": 1.2, "color": SERIES[number % len(SERIES)]},
                "marker": {"size": 8, "symbol": SYMBOLS[(number + number // len(SERIES)) % len(SYMBOLS)]},
                "hovertemplate": "%{text}<br>%{x} accelerators, %{y:.4g} min<extra></extra>",
            }
        )
        smallest, largest = sized[0], sized[-1]
        if smallest[0] != largest[0]:
            ideal = smallest[1] * smallest[0] / largest[0]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"{benchmark}, ideal",
                    "showlegend": False,
                    "x": [smallest[0], largest[0]],
                    "y": [smallest[1], ideal],
                    "line": {"width": 1, "dash": "dot", "color": MUTED},
                    "hoverinfo": "skip",
                }
            )
    return Figure(
        name="scaling",
        title="Scaling over system size",
        about="Score over the number of accelerators (ranks, where no description says it), of all submitters and "
        "rounds. Dotted: ideal scaling from the smallest system of the benchmark.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("accelerators", type="log", **POWERS_OF_TWO),
            "yaxis": axis("score in minutes", type="log"),
        },
        height=420,
    )


def rounds(entries: Sequence[Entry]) -> Figure | None:
    """Best score of each round by benchmark; None where all entries are of one round."""
    order = sorted({entry.round for entry in entries}, key=_as_version)
    if len(order) < 2:
        return None
    traces: list[Trace] = []
    for number, (benchmark, members) in enumerate(_by_benchmark(entries).items()):
        best: dict[str, tuple[float, str]] = {}
        for entry in members:
            if entry.minutes and entry.told["valid"]:
                best[entry.round] = min(
                    best.get(entry.round, (entry.minutes, entry.name)), (entry.minutes, entry.name)
                )
        held = [name for name in order if name in best]
        if held:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": benchmark,
                    "x": held,
                    "y": [best[name][0] for name in held],
                    "text": [best[name][1] for name in held],
                    "line": {"width": 1.2, "color": SERIES[number % len(SERIES)]},
                    "marker": {"size": 8, "symbol": SYMBOLS[(number + number // len(SERIES)) % len(SYMBOLS)]},
                    "hovertemplate": "%{text}<br>%{x}: %{y:.4g} min<extra></extra>",
                }
            )
    if not traces:
        return None
    return Figure(
        name="rounds",
        title="Change over rounds",
        about="The best valid score of each round, by benchmark, whatever the size of the system.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("round", type="category", categoryorder="array", categoryarray=order),
            "yaxis": axis("score in minutes", type="log"),
        },
        height=420,
    )


def _by_benchmark(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.told["benchmark"], []).append(entry)
    return groups


def _as_version(name: str) -> tuple[bool, list[int], str]:
    """Official rounds by number, ours after them."""
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    return not re.fullmatch(r"[\d.]+", name), numbers, name
