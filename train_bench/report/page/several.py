"""Comparison of several entries: ratios, scaling over system size, change over rounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from train_bench.compare import comparison
from train_bench.errors import RequestError
from train_bench.judge.checks import environment
from train_bench.judge.entry import Judgement
from train_bench.report import comparison as described
from train_bench.report.page import quality
from train_bench.report.page.facts import Entry, TimeUnit
from train_bench.report.page.figure import MUTED, POWERS_OF_TWO, SERIES, SYMBOLS, Figure, Trace, axis

SIZE = re.compile(r"(?i)(?<![a-z0-9])[nx]?\d+x?(?![a-z0-9])")
"""Size in a system's name: `n8`, `8x`, `64`."""


def ratios(entries: Sequence[Entry]) -> dict[str, float | None]:
    """Score over that of the first entry of the same benchmark that has one, by anchor."""
    first: dict[str, float] = {}
    of_entries: dict[str, float | None] = {}
    for entry in entries:
        if entry.minutes:
            first.setdefault(entry.result["benchmark"], entry.minutes)
        of_entries[entry.anchor] = entry.minutes / first[entry.result["benchmark"]] if entry.minutes else None
    return of_entries


def answers(judgements: Sequence[Judgement], entries: Sequence[Entry]) -> list[str]:
    """Verdict of each campaign against the first of its benchmark, in words; empty if they cannot be compared."""
    first: dict[str, tuple[Judgement, Entry]] = {}
    sentences = []
    for judgement, entry in zip(judgements, entries, strict=True):
        if judgement.score.launcher is None:  # published logs: a round is not a pairwise comparison
            continue
        a, named = first.setdefault(judgement.score.benchmark, (judgement, entry))
        if a is judgement:
            continue
        try:
            compared = comparison.compare(named.name, a.score, entry.name, judgement.score).as_json()
            compared["environment"] = environment.differences(a.location.folder, judgement.location.folder)
        except RequestError:
            continue
        lines = (
            described.in_sentences(compared, 1)["sentence"],
            *described.explanation(described.in_sentences(compared, 1)),
        )
        sentences.append(f"A: {named.name}. B: {entry.name}. {' '.join(lines)}")
    return sentences


def figures(entries: Sequence[Entry]) -> list[Figure]:
    """Figures with at least one point."""
    shown = [
        scaling(entries),
        rounds(entries),
        pareto(
            entries, "energy", "joules to the target", lambda one: one.energy.joules if one.energy else None
        ),
        pareto(entries, "cost", "cost to train", lambda one: one.cost),
    ]
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
    unit = entries[0].unit
    for number, (benchmark, members) in enumerate(_by_benchmark(entries).items()):
        known = [one for one in members if one.size and one.minutes]
        if known:
            traces += _families(number, benchmark, known)
            sizes, minutes = zip(*sorted((one.size or 0, one.minutes or 0.0) for one in known), strict=True)
            traces += _ideal(benchmark, sizes, minutes, unit)
    return Figure(
        name="scaling",
        title="Scaling over system size",
        about="Score over the number of accelerators (ranks, where there is no system description), of all "
        "submitters and rounds; crosses are NOT VALID. Lines join the sizes of one system of one "
        "submitter and round. Dotted: ideal scaling from the smallest system of the benchmark.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("accelerators", type="log", **POWERS_OF_TWO),
            "yaxis": axis(f"score in {unit.name}", type="log"),
        },
        height=420,
    )


def rounds(entries: Sequence[Entry]) -> Figure | None:
    """Best score of each round by benchmark; None where all entries are of one round."""
    order = sorted({entry.round for entry in entries}, key=_as_version)
    if len(order) < 2:
        return None
    traces: list[Trace] = []
    unit = entries[0].unit
    for number, (benchmark, members) in enumerate(_by_benchmark(entries).items()):
        valid = [
            (one.minutes, _label(one), one.round, one.anchor)
            for one in members
            if one.minutes and one.result["valid"]
        ]
        best = {
            name: min(of_round) for name in order if (of_round := [one for one in valid if one[2] == name])
        }
        if best:
            minutes, labels, held, anchors = zip(*best.values(), strict=True)
            traces.append(
                _series(number, benchmark, held, minutes, labels, unit) | {"meta": {"entries": list(anchors)}}
            )
    if not traces:
        return None
    return Figure(
        name="rounds",
        title="Change over rounds",
        about="The best valid score of each round, by benchmark, over systems of all sizes.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("round", type="category", categoryorder="array", categoryarray=order),
            "yaxis": axis(f"score in {unit.name}", type="log"),
        },
        height=420,
    )


def pareto(
    entries: Sequence[Entry], name: str, title: str, of: Callable[[Entry], float | None]
) -> Figure | None:
    """Time against `of`, with the Pareto front of the valid results of each benchmark. None unless two entries of a
    benchmark have both values."""
    known = [one for one in entries if one.minutes and of(one) is not None]
    groups = [group for group in _by_benchmark(known).values() if len(group) > 1]
    if not groups:
        return None
    unit = entries[0].unit
    traces: list[Trace] = []
    for number, members in enumerate(groups):
        benchmark = members[0].result["benchmark"]
        for valid, symbol in ((True, SYMBOLS[number % len(SYMBOLS)]), (False, "x")):
            shown = [one for one in members if bool(one.result["valid"]) == valid]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": benchmark if valid else f"{benchmark}, NOT VALID",
                    "x": [unit.of(one.minutes) for one in shown],
                    "y": [of(one) for one in shown],
                    "text": [_label(one) for one in shown],
                    "marker": {"size": 9, "symbol": symbol, "color": SERIES[number % len(SERIES)]},
                    "meta": {"entries": [one.anchor for one in shown]},
                    "hovertemplate": f"%{{text}}<br>%{{x:.4g}} {unit.symbol}, %{{y:.4g}}<extra></extra>",
                }
            )
        front = _front([(one.minutes or 0.0, of(one) or 0.0) for one in members if one.result["valid"]])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{benchmark}, Pareto front",
                "x": [unit.of(minutes) for minutes, _ in front],
                "y": [value for _, value in front],
                "line": {"width": 1.2, "dash": "dash", "shape": "hv", "color": SERIES[number % len(SERIES)]},
                "hoverinfo": "skip",
            }
        )
    missing = len(entries) - sum(map(len, groups))
    return Figure(
        name=f"pareto {name}",
        title=f"Time and {name}",
        about=f"Score and {title} of each entry; the dashed line is the Pareto front of the valid entries of "
        "a benchmark."
        + (
            f" Entries that lack one of them, or are the only one of their benchmark: {missing}."
            if missing
            else ""
        ),
        traces=[trace for trace in traces if trace["x"]],
        layout={
            "showlegend": True,
            "xaxis": axis(f"score in {unit.name}", rangemode="tozero"),
            "yaxis": axis(title, rangemode="tozero"),
        },
        height=420,
    )


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pareto front: entries that no other dominates, by the first value."""
    front: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _families(number: int, benchmark: str, known: Sequence[Entry]) -> list[Trace]:
    """One line for each submitter, round and system, whatever its size; all of a benchmark alike."""
    families: dict[tuple[str, str, str], list[Entry]] = {}
    for one in known:
        system = SIZE.sub("", str(one.result["system"] or one.anchor))
        families.setdefault((str(one.result["submitter"]), one.round, system), []).append(one)
    traces: list[Trace] = []
    for members in families.values():
        members.sort(key=lambda one: (one.size or 0, one.minutes or 0.0))
        trace = _series(
            number,
            benchmark,
            [one.size for one in members],
            [one.minutes or 0.0 for one in members],
            [_label(one) for one in members],
            members[0].unit,
        )
        symbol = trace["marker"]["symbol"]
        symbols = [symbol if one.result["valid"] else "x" for one in members]
        traces.append(
            trace
            | {
                "marker": trace["marker"] | {"symbol": symbols},
                "legendgroup": benchmark,
                "showlegend": not traces,
                "meta": {"entries": [one.anchor for one in members]},
            }
        )
    return traces


def _series(
    number: int,
    name: str,
    x: Sequence[Any],
    minutes: Sequence[float],
    labels: Sequence[str],
    unit: TimeUnit,
) -> Trace:
    """The scores of one benchmark, with a colour and a symbol of its own as long as there are any."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": list(map(unit.of, minutes)),
        "text": labels,
        "line": {"width": 1.2, "color": SERIES[number % len(SERIES)]},
        "marker": {"size": 8, "symbol": SYMBOLS[(number + number // len(SERIES)) % len(SYMBOLS)]},
        "hovertemplate": f"%{{text}}<br>%{{x}}: %{{y:.4g}} {unit.symbol}<extra></extra>",
    }


def _ideal(benchmark: str, sizes: Sequence[int], minutes: Sequence[float], unit: TimeUnit) -> list[Trace]:
    """Ideal scaling: half the time on twice the system, from the smallest of several sizes."""
    if sizes[0] == sizes[-1]:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{benchmark}, ideal",
            "showlegend": False,
            "x": [sizes[0], sizes[-1]],
            "y": [unit.of(minutes[0]), unit.of(minutes[0] * sizes[0] / sizes[-1])],
            "line": {"width": 1, "dash": "dot", "color": MUTED},
            "hoverinfo": "skip",
        }
    ]


def _label(entry: Entry) -> str:
    return f"{entry.name} ({entry.round}{'' if entry.result['valid'] else ', NOT VALID'})"


def _by_benchmark(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.result["benchmark"], []).append(entry)
    return groups


def _as_version(name: str) -> tuple[bool, list[int], str]:
    """Official rounds by number, ours after them."""
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    return not re.fullmatch(r"[\d.]+", name), numbers, name
