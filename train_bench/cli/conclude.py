"""Answer of a finished campaign, and lines on the way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.campaign import finish
from train_bench.campaign.status import scores_as_json
from train_bench.cli import exit_codes
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core.escape import plain
from train_bench.judge.tree import Judged
from train_bench.report import score_table


def conclude(folder: Path, store: str | None = None) -> Answer:
    """Finish a campaign; its answer is the object of `score --json`."""
    return answer_of([finish.finish(folder, store)])


def answer_of(finished: Sequence[finish.Finished]) -> Answer:
    """Print paths of pages and warnings; the exit code is that of the verdicts."""
    for one in finished:
        if one.page is not None:
            say(f"report: {one.page}")
        if one.store is not None:
            say(f"store: {one.store}")
        for text in one.warnings:
            warn(text)
    judged = Judged(entries=tuple(one.judgement for one in finished))
    return Answer(code=VALID if judged.valid else INVALID, content=scores_as_json(judged), show=show)


def unfinished() -> Answer:
    """Answer for a campaign that is not to be judged now: it waits in a queue, or a part of it was run."""
    return Answer(content=scores_as_json(Judged(entries=())), show=show)


def show(content: Mapping[str, Any], console: Console) -> None:
    """Scores of campaigns."""
    for entry in content["entries"]:
        score_table.show_score(entry, console)


def say(text: str) -> None:
    """Print a line at once, on one line."""
    print(plain(text), flush=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    exit_codes.say(f"warning: {text}")
