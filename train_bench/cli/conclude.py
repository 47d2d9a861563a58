"""Last lines of a finished campaign, and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from train_bench.campaign import finish, status
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core.escape import plain
from train_bench.report import table


def conclude(folder: Path, store: str | None = None) -> int:
    """Finish a campaign and show it; the exit code of its verdict."""
    return show(finish.finish(folder, store))


def show(finished: finish.Finished) -> int:
    """Print the path of the page, warnings, and the score; returns the exit code of its verdict."""
    if finished.page is not None:
        print(f"report: {finished.page}")
    if finished.store is not None:
        print(f"store: {finished.store}")
    for text in finished.warnings:
        warn(plain(text))
    judgement = finished.judgement
    costs = {"energy": judgement.energy_as_json(), "restarts": status.restarts_of(judgement)}
    table.show_score(judgement.score.as_json() | costs, table.console())
    return VALID if judgement.score.valid else INVALID


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    print(f"train-bench: warning: {text}", file=sys.stderr)
