"""What the judge found, for a terminal. Takes the object that `judge --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from train_bench.report.table import summary


def show(judgement: Mapping[str, Any], console: Console) -> None:
    """Every run with its findings, then the convergence check and whether the result is valid."""
    for run in judgement["runs"]:
        verdict = "converged" if run["converged"] else "not converged"
        rules = "follows the rules" if run["compliant"] else "BREAKS THE RULES"
        _say(console, f"{run['file']}: {run['status']}, {verdict}, {rules}")
        for finding in run["findings"]:
            place = f" line {finding['line']}" if finding["line"] else ""
            _say(console, f"  [{finding['check']}]{place} {finding['message']}")
    for line in summary(judgement):
        _say(console, line)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
