"""Attempts at the runs of a campaign: `attempts/run_N_K.json` is written before the processes of attempt K at run N
start, and again when they have ended. None is ever removed, so that the judge knows the number of attempts at a run
and their software. `host` is the one that started it: another may resume a campaign."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import CHECKPOINT, Job
from train_bench.core.secret_filter import redacted
from train_bench.energy.meter import discard_readings
from train_bench.judge.checks.campaign_checks import CONTINUES, DIED, FINISHED, INTERRUPTED
from train_bench.plan.provenance import ran_with


@contextmanager
def attempt(
    job: Job,
    ruleset_digest: str,
    witnessed: Callable[[], Mapping[str, Any]] = dict,
    *,
    continues: bool = False,
) -> Iterator[list[str]]:
    """Record one more attempt at a run. The list takes the deaths of its processes; an attempt that is killed
    together with the campaign has no `ended`. `witnessed` gives what this process has measured, once it has ended. One
    that `continues` goes on in the log of the attempt before it."""
    number = 1 + max((taken for run, taken in _numbers(job.folder) if run == job.index), default=0)
    path = job.folder / "attempts" / f"run_{job.index}_{number}.json"
    state: dict[str, Any] = {"run": job.index, "attempt": number, "host": platform.node(), "started": _now()}
    state |= (
        ran_with(job.reference, ruleset_digest, job.command, job.python)
        | {
            "ended": None,
            "outcome": None,
            "deaths": [],
        }
        | ({CONTINUES: True} if continues else {})
    )
    files.write_json(path, state)
    died: list[str] = []
    try:
        yield died
    except KeyboardInterrupt:
        files.write_json(path, state | {"ended": _now(), "outcome": INTERRUPTED})
        raise
    except Exception as error:
        files.write_json(path, state | {"ended": _now(), "outcome": DIED, "deaths": [redacted(str(error))]})
        raise
    outcome = DIED if died else FINISHED
    files.write_json(
        path,
        state | {"ended": _now(), "outcome": outcome, "deaths": [*map(redacted, died)]} | dict(witnessed()),
    )


def can_continue(job: Job) -> bool:
    """True for a run whose campaign was ended behind a checkpoint: it goes on from there in its log."""
    latest = job.checkpoints_folder / CHECKPOINT
    has_one = job.checkpoint_seconds is not None and latest.exists()
    return has_one and job.partial_log.exists() and not job.result_file.exists()


def archive(job: Job) -> None:
    """Archive the logs of an earlier attempt at a run that is about to be repeated, under `failed/`."""
    if can_continue(job):
        return
    discard_readings(job)
    for log in (job.result_file, job.partial_log):
        if log.exists():
            folder = job.folder / "failed"
            folder.mkdir(exist_ok=True)
            attempt = len(list(folder.glob(f"result_{job.index}_*.txt"))) + 1
            log.rename(folder / f"result_{job.index}_{attempt}.txt")
            (job.folder / f"record_{job.index}.json").unlink(missing_ok=True)


def _numbers(folder: Path) -> Iterator[tuple[int, int]]:
    for path in (folder / "attempts").glob("run_*_*.json"):
        match = re.fullmatch(r"run_(\d+)_(\d+)", path.stem)
        if match:
            yield int(match[1]), int(match[2])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
