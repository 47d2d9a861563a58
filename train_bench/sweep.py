"""A sweep: each job of it is a process of its own, the command that a user would type for it, so that a job that
is refused, fails or is killed takes no other down, whichever of Hydra's launchers starts it.

A sweep's folder holds `sweep.json` (the jobs that were asked), per job `N.json` (how it went), `N.stderr` and
`N/`, its campaign.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench import papers
from train_bench.plan import launch
from train_bench.report import sweep as table

LOST = "its process was killed, or never started"


def begin(folder: Path, jobs: Sequence[Sequence[str]]) -> None:
    """Write down what was asked, before any job starts."""
    papers.write_json(folder / "sweep.json", [list(words) for words in jobs])


def run_job(verb: str, folder: Path, number: int, words: Sequence[str]) -> int:
    """Carry out one job and leave how it went in the sweep's folder. Returns its exit code."""
    campaign = folder / str(number)
    asked = [f"resume={campaign}"] if (campaign / "plan.json").exists() else [*words, f"output={campaign}"]
    stderr = folder / f"{number}.stderr"
    try:
        code = launch.run_through((sys.executable, "-m", "train_bench", verb, *asked), stderr)
    finally:
        said = stderr.read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(said)
        sys.stderr.flush()
    papers.write_json(
        folder / f"{number}.json", {"exit_code": code, "said": said.strip().rpartition("\n")[2]}
    )
    return code


def conclude(folder: Path, trouble: str | None) -> int:
    """Show one table of all jobs, and the `trouble` of the launcher that started them. Returns their exit code
    if they agree, else 1."""
    told = outcomes(folder)
    table.show_sweep(told, folder, Console())
    if trouble is not None:
        sys.stderr.write(f"train-bench: the launcher of the sweep gave up: {trouble}\n")
        return 1
    codes = {job["exit_code"] for job in told}
    return int(codes.pop()) if codes in ({0}, {2}) else 1


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """One object per job that was asked, for the table: `number`, `words`, `exit_code` (None where a job left
    nothing), `said` (its last line on standard error), `score` (the object of its score.json, or None)."""
    told = []
    for number, words in enumerate(papers.read_json(folder / "sweep.json")):
        path, score = folder / f"{number}.json", folder / str(number) / "score.json"
        ending = papers.read_json(path) if path.exists() else {"exit_code": None, "said": LOST}
        told.append(
            {
                "number": number,
                "words": words,
                **ending,
                "score": papers.read_json(score) if score.exists() else None,
            }
        )
    return told
