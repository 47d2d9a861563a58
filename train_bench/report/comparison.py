"""Comparisons for a terminal: a table and the verdict in words. Takes the object of `compare --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.core.digits import distinct, significant
from train_bench.report.console import print_line

MOST_VARIABLES = 6
"""Environment variables that are listed."""


def in_sentences(compared: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A comparison with the verdict in words, in which the first campaign is A and that of the comparison `number`,
    from 1, is B, C, ...: paths are long and have a common prefix."""
    other = chr(ord("A") + number) if number < 26 else f"campaign {number + 1}"
    named = {
        **compared,
        "a": {**compared["a"], "label": "A"},
        "b": {**compared["b"], "label": other},
    }
    return named | {"sentence": sentence(named)}


def show(content: Mapping[str, Any], console: Console) -> None:
    """For each comparison: both sides, the verdict, and the source of the difference."""
    for compared in content["comparisons"]:
        table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
        table.add_column("", no_wrap=True)
        table.add_column("campaign", overflow="fold")
        for heading in ("runs", "geometric mean, min", "score, min"):
            table.add_column(heading, justify="right", no_wrap=True)
        for side in (compared["a"], compared["b"]):
            score = "-" if side["score_minutes"] is None else f"{side['score_minutes']:.4f}"
            table.add_row(
                side["label"], side["name"], str(side["runs"]), f"{side['geometric_minutes']:.4f}", score
            )
        console.print(table)
        for line in (compared["sentence"], *explanation(compared)):
            print_line(console, line)


def sentence(compared: Mapping[str, Any]) -> str:
    """Verdict: the faster side and the ratio, or the number of further runs that would decide."""
    a, b, speedup = compared["a"]["label"], compared["b"]["label"], compared["speedup"]
    low, high = speedup["low"], speedup["high"]
    taken = f"{b} takes {_times(speedup, a)}"
    if low > 1:
        return f"{b} is faster than {a}: {taken}."
    if high < 1:
        return f"{a} is faster than {b}: {taken}."
    if compared["more_runs"] is None:
        further = "more than 200 more seeds each would be needed to detect the observed difference"
    else:
        further = f"about {compared['more_runs']} more seeds each would detect the observed difference"
    return f"No significant difference between {a} and {b}: {taken}; {further}."


def explanation(compared: Mapping[str, Any]) -> list[str]:
    """Method, contributions of throughput and convergence, and caveats."""
    lines = [
        "The comparison is paired by seed."
        if compared["paired"]
        else "The runs were compared as independent samples."
    ]
    throughput, convergence = compared["throughput"], compared["convergence"]
    if throughput and convergence:
        speedup, _ = distinct(compared["speedup"]["value"], 1.0, decimals=3)
        lines.append(
            f"The speedup of {speedup} is the product of {_ratio(throughput)} in "
            f"throughput and {_ratio(convergence)} in samples to the target."
        )
        if convergence["low"] <= 1 <= convergence["high"]:
            lines.append(
                "The difference in samples to the target is not significant: its 95 % confidence interval includes 1."
            )
    differing = compared.get("environment", ())
    if differing:
        more = f" and {len(differing) - MOST_VARIABLES} more" if len(differing) > MOST_VARIABLES else ""
        lines.append(
            f"Environment variables differ ({compared['a']['label']}, {compared['b']['label']}): "
            f"{', '.join(differing[:MOST_VARIABLES])}{more}."
        )
    for side in (compared["a"], compared["b"]):
        lines += dependence(side)
        if side["left_out"]:
            lines.append(
                f"{side['left_out']} run(s) of {side['label']} are left out: they do not count, are no independent "
                "ones, or the other side lacks their seed."
            )
        if not side["valid"]:
            lines.append(f"{side['label']} is not a valid result; `train-bench judge` lists the reasons.")
    return lines


def dependence(side: Mapping[str, Any]) -> list[str]:
    """Runs of a side that are not independent of each other."""
    label, lines = side["label"], []
    if side["one_seed"] is not None:
        lines.append(
            f"All {side['runs']} runs of {label} have seed {side['one_seed']}, so the confidence interval holds for "
            "this seed only."
        )
    if side["repeated_seeds"]:
        lines.append(
            f"{side['repeated_seeds']} run(s) of {label} repeat a seed and do not count as further runs."
        )
    if side["copies"]:
        lines.append(f"{side['copies']} log(s) of {label} are copies of others and do not count.")
    return lines


def _ratio(ratio: Mapping[str, float]) -> str:
    value, low, high = (distinct(ratio[name], 1.0, decimals=3)[0] for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _times(speedup: Mapping[str, float], a: str) -> str:
    """Ratio of times with its confidence interval, in digits that tell each of them from 1."""
    ratios = (1 / speedup["value"], 1 / speedup["high"], 1 / speedup["low"])
    value, low, high = (significant(ratio, 1.0, digits=3)[0] for ratio in ratios)
    return f"{value} times as long as {a} (95 % confidence interval {low} to {high})"
