"""Verdict of a regression gate, for a terminal. Takes the object of `compare --fail-if-slower --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from train_bench.compare.gate import CANNOT_TELL, NOT_SLOWER, SLOWER


def show(content: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts, before everything else."""
    for gate in content["gates"]:
        console.print(gate["sentence"], highlight=False, markup=False, soft_wrap=True)


def sentence(gate: Mapping[str, Any], a: str, b: str) -> str:
    """Verdict on `b` against `a`, its confidence bounds, and the further runs that would decide."""
    question = f"{b} is slower than {a} by more than {100 * gate['limit']:g} %"
    bounds = gate["bounds"]
    if bounds is None:
        return f"These runs cannot tell whether {question}: chance shows from two runs of each on."
    level = f"one-sided level {100 * max(bounds['low_level'], bounds['high_level']):.2g} %"
    seen = f"it takes {_time(bounds['value'])}"
    if gate["verdict"] == SLOWER:
        low = f"one-sided level {100 * bounds['low_level']:.2g} %"
        return f"{question}: {seen}, and by its lower bound ({low}) {_time(bounds['low'])}.{_looked(gate)}"
    if gate["verdict"] == NOT_SLOWER:
        high = f"one-sided level {100 * bounds['high_level']:.2g} %"
        return (
            f"{b} is not slower than {a} by more than {100 * gate['limit']:g} %: {seen}, and by its upper bound "
            f"({high}) {_time(bounds['high'])}.{_looked(gate)}"
        )
    if gate["without_time"] and bounds["high"] < 1 + gate["limit"]:
        return (
            f"Whether {question} cannot be told: {seen}, but {gate['without_time']} of its runs ended without a time "
            f"that counts, more than {a} leads to expect; `train-bench judge` says why.{_looked(gate)}"
        )
    return (
        f"These runs cannot tell whether {question}: {seen}, between {_time(bounds['low'])} and "
        f"{_time(bounds['high'])} ({level} at each end).{_looked(gate)}{_further(gate, a, b)}"
    )


def _looked(gate: Mapping[str, Any]) -> str:
    if gate["most_pairs"] is None:
        return ""
    pairs = gate["bounds"]["runs"]
    if gate["verdict"] == CANNOT_TELL:
        return f" {pairs} of at most {gate['most_pairs']} pairs of runs were looked at."
    return f" Known after {pairs} of at most {gate['most_pairs']} pairs of runs."


def _further(gate: Mapping[str, Any], a: str, b: str) -> str:
    if gate["most_pairs"] is not None and gate["bounds"]["runs"] < gate["most_pairs"]:
        return " The next pair may tell."
    if gate["campaigns"]:
        if gate["more_runs"] is None:
            return (
                " More seeds of it alone would hardly tell; the campaigns of the history differ too much, "
                "or are too few."
            )
        return f" About {gate['more_runs']} more seeds of {b} would tell, if it is as slow as was seen."
    if gate["more_runs"] is None:
        return " It would take more than 200 more seeds each, if it is as slow as was seen."
    again = " in a comparison of its own" if gate["most_pairs"] is not None else ""
    return f" About {gate['more_runs']} more seeds each{again} would tell, if it is as slow as was seen."


def _time(ratio: float) -> str:
    percent = abs(ratio - 1) * 100
    digits = 0 if percent >= 10 else 1
    return f"{percent:.{digits}f} % {'more' if ratio >= 1 else 'less'} time"
