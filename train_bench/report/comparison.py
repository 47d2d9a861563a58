"""Comparisons for a terminal: a table and the verdict in words. Takes the object of `compare --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.report.console import print_line


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
    value, low, high = speedup["value"], speedup["low"], speedup["high"]
    if low > 1:
        return f"{b} is {_percent(value)} faster than {a}, 95 % confidence interval {_interval(low, high)}."
    if high < 1:
        return f"{a} is {_percent(1 / value)} faster than {b}, 95 % confidence interval {_interval(1 / high, 1 / low)}."
    if compared["more_runs"] is None:
        observed = _percent(max(value, 1 / value))
        further = (
            f"more than 200 more seeds each would be needed to detect the observed difference ({observed})"
        )
    else:
        further = f"about {compared['more_runs']} more seeds each would detect the observed difference"
    return (
        f"No significant difference between {a} and {b}: {b} takes {1 / value:.2g} times as long as {a} "
        f"(95 % confidence interval {1 / high:.2g} to {1 / low:.2g}); {further}."
    )


def explanation(compared: Mapping[str, Any]) -> list[str]:
    """Method, contributions of throughput and convergence, and caveats."""
    lines = [
        "The comparison is paired by seed."
        if compared["paired"]
        else "The runs were compared as independent samples."
    ]
    throughput, convergence = compared["throughput"], compared["convergence"]
    if throughput and convergence:
        lines.append(
            f"The speedup of {compared['speedup']['value']:.3f} is the product of {_ratio(throughput)} in "
            f"throughput and {_ratio(convergence)} in samples to the target."
        )
        if convergence["low"] <= 1 <= convergence["high"]:
            lines.append(
                "The difference in samples to the target is not significant: its 95 % confidence interval includes 1."
            )
    for side in (compared["a"], compared["b"]):
        if side["left_out"]:
            lines.append(
                f"{side['left_out']} run(s) of {side['label']} are left out: they do not count, or the "
                "other side lacks their seed."
            )
        if not side["valid"]:
            lines.append(f"{side['label']} is not a valid result; `train-bench judge` lists the reasons.")
    return lines


def _ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def _percent(ratio: float) -> str:
    percent = (ratio - 1) * 100
    return f"{percent:.{0 if percent >= 10 else 1}f} %"


def _interval(low: float, high: float) -> str:
    digits = 0 if high - low >= 0.1 else 1
    return f"{(low - 1) * 100:.{digits}f} to {(high - 1) * 100:.{digits}f} %"
