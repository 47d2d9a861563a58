"""Weights that the runs of a campaign have kept (keep_weights=true), held against their logs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import KEPT_WEIGHTS, WEIGHTS, Job
from train_bench.errors import RequestError
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run with the files of its weights, which are those that its log names, and its logged metrics."""

    job: Job
    record: RunRecord
    log: Log
    paths: tuple[Path, ...]
    digests: Mapping[str, str]
    logged: Mapping[str, float]


def kept_runs(campaign: Campaign) -> list[Kept]:
    """Every run with a log, whose weights are held against it. Raises `RequestError` where weights are missing, changed
    or without a finite quality."""
    return [_kept(campaign, job) for job in _finished(campaign)]


def kept_run(campaign: Campaign, index: int) -> Kept:
    """One run, as `kept_runs` has it; weights of other runs are not read. Raises as it does, and for a run without a
    log."""
    finished = {job.index: job for job in _finished(campaign)}
    if index not in finished:
        raise RequestError(
            f"{campaign.folder} has no finished run {index}; it has {', '.join(map(str, finished))} (--run)."
        )
    return _kept(campaign, finished[index])


def _finished(campaign: Campaign) -> list[Job]:
    finished = [job for job in campaign.jobs if job.result_file.exists()]
    if not finished:
        raise RequestError(
            f"The campaign in {campaign.folder} has no result yet; there are no weights of it."
        )
    return finished


def _kept(campaign: Campaign, job: Job) -> Kept:
    record, log = read_record(job.result_file, campaign.rules)
    kept = next((event.value for event in log.events if event.key == KEPT_WEIGHTS), None)
    if not isinstance(kept, Mapping) or not isinstance(kept.get("files"), Mapping) or not kept["files"]:
        why = f": {kept['error']}" if isinstance(kept, Mapping) and "error" in kept else ""
        raise RequestError(
            f"{job.result_file} names no weights{why}; they are kept by a campaign with keep_weights=true."
        )
    logged = dict(campaign.first.target.quality_of(record.quality).metrics)
    if any(not math.isfinite(value) for value in logged.values()):
        raise RequestError(
            f"The last evaluation of {job.result_file} gave no number; nothing can be verified."
        )
    digests = kept["files"]
    return Kept(
        job=job,
        record=record,
        log=log,
        paths=tuple(_unchanged(job, digests)),
        digests=digests,
        logged=logged,
    )


def _unchanged(job: Job, named: Mapping[str, Any]) -> Iterator[Path]:
    for name, digest in named.items():
        path = job.folder / WEIGHTS / name
        if Path(name).name != name:
            raise RequestError(f"{job.result_file} names the weights '{name}', which is not a file name.")
        try:
            found = files.digest(path)
        except OSError as error:
            raise RequestError(
                f"{path} cannot be read ({error.strerror}); these are the weights that {job.result_file} names."
            ) from error
        if found != digest:
            raise RequestError(
                f"{path} is not what {job.result_file} names: its sha256 is {found[:12]}..., and that in the log "
                f"{str(digest)[:12]}.... It was changed, or belongs to another run; put back the file of this run."
            )
        yield path
