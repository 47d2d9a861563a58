"""Judgement of LoadGen tests, for a terminal. Takes the object that `judge --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from train_bench.report.console import print_line
from train_bench.report.findings import GRADES

METRICS = {
    "early_stopping_latency_ss": "90th percentile latency, by early stopping: {:,.0f} ns",
    "early_stopping_latency_ms": "99th percentile latency of a query, by early stopping: {:,.0f} ns",
    "result_completed_samples_per_sec": "{:.6g} samples/s completed",
    "result_samples_per_second": "{:.6g} samples/s",
}


def show(judged: Mapping[str, Any], console: Console) -> None:
    """Each test with its verdicts, its metric and its findings."""
    for test in judged["tests"]:
        model = "" if test["model"] is None else f"{test['model']}, "
        print_line(
            console,
            f"{test['file']}: {model}{test['scenario']}, {test['mode']}: {'VALID' if test['valid'] else 'INVALID'}",
        )
        if test["value"] is not None:
            print_line(console, f"  {METRICS[test['metric']].format(test['value'])}{_extent(test)}")
        for finding in test["findings"]:
            print_line(console, f"  [{finding['check']}, {GRADES[finding['grade']]}] {finding['message']}")
        if test["loadgen"] is not None:
            trace = (
                "there is no trace to check it by"
                if test["trace"] is None
                else f"its trace gives {test['trace']}"
            )
            print_line(console, f"  LoadGen says {test['loadgen']}; {trace}.")
        if test["official"] is not None:
            refused = ", ".join(test["official"]["reasons"])
            said = f"refuses it ({refused})" if refused else "accepts it"
            print_line(console, f"  The official submission checker {said}.")
    for reason in judged["unjudged"]:
        print_line(console, f"Not judged: {reason}")
    valid = sum(test["valid"] is True for test in judged["tests"])
    print_line(console, f"{valid} of {len(judged['tests'])} tests are valid.")


def _extent(test: Mapping[str, Any]) -> str:
    return "" if test["queries"] is None else f" (queries: {test['queries']}; {test['seconds']:.3g} s)"
