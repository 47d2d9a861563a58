"""Comparison of several entries: ratios, scaling over system size, change over rounds."""

from __future__ import annotations

import contextlib
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train_bench.compare import campaign_table, comparison, verdict
from train_bench.compare.differences import differences_as_json
from train_bench.errors import RequestError
from train_bench.judge.entry import Judgement
from train_bench.report import comparison as described
from train_bench.report.page import quality
from train_bench.report.page.facts import Entry, PageOptions, TimeUnit
from train_bench.report.page.figure import FAILED, MUTED, POWERS_OF_TWO, SERIES, SYMBOLS, Figure, Trace, axis
from train_bench.report.score_table import validity

VERDICTS = (
    (verdict.FASTER, SERIES[2], "triangle-down"),
    (verdict.UNDECIDED, MUTED, "circle-open"),
    (verdict.SLOWER, FAILED, "triangle-up"),
    (verdict.LESS_OFTEN, FAILED, "x"),
    (verdict.MORE_OFTEN, SERIES[2], "x"),
)
"""Verdicts of a table of campaigns with their marks."""

UNCOUNTED = {"NOT VALID": "x", "NO RESULT": "x", "INCOMPLETE": "circle-open"}
"""Symbols of results that do not count."""

SIZE = re.compile(r"(?i)(?<![a-z0-9])[nx]?\d+x?(?![a-z0-9])")
"""Size in a system's name: `n8`, `8x`, `64`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Comparison of the campaigns of each benchmark with the baseline among them: sentences of two campaigns, rows of
    the table of more, and what stands below it. Both are empty where campaigns cannot be compared. `ratios` has the
    ratio of times that was compared, `letters` the letter of each campaign in them, both by anchor."""

    sentences: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    below: Sequence[str]
    ratios: Mapping[str, float]
    letters: Mapping[str, str]


def answers(judgements: Sequence[Judgement], entries: Sequence[Entry], options: PageOptions) -> Answers:
    """Answers of all benchmarks. Published logs have none: a round is not a pairwise comparison."""
    groups: dict[str, list[tuple[Judgement, Entry]]] = {}
    for judgement, entry in zip(judgements, entries, strict=True):
        if judgement.score.launcher is not None:
            groups.setdefault(judgement.score.benchmark, []).append((judgement, entry))
    sentences: list[str] = []
    rows: list[Mapping[str, Any]] = []
    below: list[str] = []
    ratios: dict[str, float] = {}
    letters: dict[str, str] = {}
    for members in groups.values():
        with contextlib.suppress(RequestError):
            if len(members) == 2:
                compared = _compared(*members[0], *members[1], options)
                sentences.append(_sentence(compared, members[0][1], members[1][1]))
                ratios[members[1][1].anchor] = 1 / compared["speedup"]["value"]
                letters |= {members[0][1].anchor: "A", members[1][1].anchor: "B"}
            elif len(members) > 2:
                shown = described.distinct_names([str(one.location.folder) for one, _ in members])
                names = [entry.name for _, entry in members]
                made = [
                    row.as_json()
                    for row in campaign_table.make_rows(
                        names, [one for one, _ in members], options.baseline, options.history
                    )
                ]
                rows += [
                    row
                    | {
                        "anchor": entry.anchor,
                        "benchmark": one.score.variant or one.score.benchmark,
                        "shown": name,
                    }
                    for row, name, (one, entry) in zip(made, shown, members, strict=True)
                ]
                below += described.below(made)
                letters |= {row["anchor"]: row["label"] for row in rows}
                if options.baseline == campaign_table.FIRST:
                    ratios |= {
                        entry.anchor: row["ratio"]["value"]
                        for row, (_, entry) in zip(made, members, strict=True)
                        if row["ratio"]
                    }
    return Answers(
        sentences=sentences, rows=rows, below=list(dict.fromkeys(below)), ratios=ratios, letters=letters
    )


def ratios(
    entries: Sequence[Entry], judgements: Sequence[Judgement], answers: Answers
) -> dict[str, float | None]:
    """Geometric mean time of the runs that reached the target over that of the first entry of the same benchmark that
    has one, by anchor; where the two were compared, the ratio of that comparison."""
    first: dict[str, float] = {}
    of_entries: dict[str, float | None] = {}
    for entry, judged in zip(entries, judgements, strict=True):
        logs = comparison.logs_of(comparison.usable(judged.score), "minutes")
        mean = statistics.fmean(logs) if logs else None
        benchmark = entry.result["benchmark"]
        if mean is not None:
            first.setdefault(benchmark, mean)
        own = None if mean is None else comparison.bounded_exp(mean - first[benchmark])
        of_entries[entry.anchor] = answers.ratios.get(entry.anchor, own)
    return of_entries


def _compared(
    a: Judgement, named_a: Entry, b: Judgement, named_b: Entry, options: PageOptions
) -> dict[str, Any]:
    compared = comparison.compare_campaigns(named_a.name, a, named_b.name, b, options.history).as_json()
    return described.in_sentences(
        compared | {"differences": differences_as_json(a, b)}, 1, gated=options.gated
    )


def _sentence(compared: Mapping[str, Any], named_a: Entry, named_b: Entry) -> str:
    lines = (
        described.difference(compared["differences"], "A", "B"),
        compared["sentence"],
        *described.explanation(compared),
    )
    return f"A: {named_a.name}. B: {named_b.name}. {' '.join(lines)}"


def figures(entries: Sequence[Entry], answers: Answers) -> list[Figure]:
    """Figures with at least one point."""
    shown = [
        ratio_figure(answers.rows),
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
        *(figure for members in alike for figure in quality.together(members, answers.letters)),
    ]


def ratio_figure(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Ratio of each campaign's time to that of the baseline, with its interval and its verdict; None below three."""
    traces: list[Trace] = []
    for word, colour, symbol in VERDICTS:
        shown = [row for row in rows if row["verdict"] == word and row["ratio"]]
        if not shown:
            continue
        ratios = [row["ratio"] for row in shown]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": word,
                "x": [
                    f"{row['label']} ({row['benchmark']})" if _mixed(rows) else row["label"] for row in shown
                ],
                "y": [one["value"] for one in ratios],
                "text": [
                    f"{row['name']}: {described.differences_in_a_row(row) or 'no difference'}"
                    for row in shown
                ],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [one["high"] - one["value"] for one in ratios],
                    "arrayminus": [one["value"] - one["low"] for one in ratios],
                    "color": colour,
                },
                "marker": {"color": colour, "size": 9, "symbol": symbol},
                "meta": {"entries": [row["anchor"] for row in shown]},
                "hovertemplate": "%{text}<br>%{y:.3f} times as long as the baseline<extra></extra>",
            }
        )
    if not traces:
        return None
    order = [f"{row['label']} ({row['benchmark']})" if _mixed(rows) else row["label"] for row in rows]
    return Figure(
        name="ratios",
        title="Time over that of the baseline",
        about="Geometric mean time of each campaign over that of the baseline of its benchmark, with 95 % confidence "
        "intervals; letters are those of the table.",
        traces=traces,
        layout={
            "showlegend": True,
            "xaxis": axis("campaign", type="category", categoryorder="array", categoryarray=order),
            "yaxis": axis("ratio of times", type="log"),
            "shapes": [
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": 1,
                    "y1": 1,
                    "line": {"dash": "dash", "width": 1, "color": MUTED},
                }
            ],
        },
        height=420,
    )


def _mixed(rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({row["benchmark"] for row in rows}) > 1


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
        "submitters and rounds; crosses are NOT VALID, open circles INCOMPLETE. Lines join the sizes of one system "
        "of one submitter and round. Dotted: ideal scaling from the smallest system of the benchmark.",
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
            (one.minutes, quality.name_of(one), one.round, one.anchor)
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
        for verdict_there in dict.fromkeys(("VALID", *(validity(one.result) for one in members))):
            shown = [one for one in members if validity(one.result) == verdict_there]
            symbol = UNCOUNTED.get(verdict_there, SYMBOLS[number % len(SYMBOLS)])
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": benchmark if verdict_there == "VALID" else f"{benchmark}, {verdict_there}",
                    "x": [unit.of(one.minutes) for one in shown],
                    "y": [of(one) for one in shown],
                    "text": [quality.name_of(one) for one in shown],
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
            [quality.name_of(one) for one in members],
            members[0].unit,
        )
        symbol = trace["marker"]["symbol"]
        symbols = [UNCOUNTED.get(validity(one.result), symbol) for one in members]
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


def _by_benchmark(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.result["benchmark"], []).append(entry)
    return groups


def _as_version(name: str) -> tuple[bool, list[int], str]:
    """Official rounds by number, ours after them."""
    numbers = [int(number) for number in re.findall(r"\d+", name)]
    return not re.fullmatch(r"[\d.]+", name), numbers, name
