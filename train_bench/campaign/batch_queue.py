"""A campaign in the queue of a batch system: submit, wait if requested, settle once it has ended. Its state is kept
in `batch.json`, in the campaign's folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train_bench.campaign.failures import pending
from train_bench.campaign.opened import Campaign
from train_bench.core import files, sent_files
from train_bench.core.job import Job
from train_bench.errors import Interrupted, LaunchError, LogError, RequestError
from train_bench.launcher import Batch, BatchTask, Launch
from train_bench.plan import process
from train_bench.plan.option import with_folder
from train_bench.plan.run_config import RunConfig

PROGRAM = (sys.executable, "-m", "train_bench")
POLL_SECONDS, LONGEST_POLL_SECONDS = 2.0, 30.0
"""Period of asking the batch system, which grows by half while nothing changes: many users ask it. Its accounting is
asked once in the longer time at most."""

SILENCE_SECONDS = 300.0


def unreachable(batch: Batch) -> Iterator[str]:
    """Reason that nothing can be submitted from here, or that the present allocation is too small."""
    if batch.inside(os.environ):
        reason = batch.refuse_allocation(os.environ)
        if reason is not None:
            yield reason
    elif shutil.which(batch.needs) is None:
        yield (
            f"The command {batch.needs} is not installed here; run this on a login node, or choose another "
            "launcher."
        )


def carry_out(campaign: Campaign, config: RunConfig, tell: Callable[[str], None]) -> bool:
    """Submit the missing runs of a campaign to its queue, with the options of `config`. Returns True once they have
    ended, False if the user does not wait for that."""
    queue, folder = campaign.queue, campaign.folder
    assert queue is not None
    argv = run_argv(folder, config)
    if queue.elsewhere and was_submitted(folder):
        settle(queue, folder)
    jobs = pending(campaign.jobs, retry_failed=config.retry_failed)
    if not jobs:
        return True
    refuse_under_way(queue, folder)
    _hand_over(queue, jobs, argv, tell)
    if queue.wait:
        wait(queue, folder, tell)
        settle(queue, folder)
    return queue.wait


def _hand_over(batch: Batch, jobs: Sequence[Job], argv: tuple[str, ...], tell: Callable[[str], None]) -> None:
    """Submit `jobs`, which `argv` carries out, and a second job that settles their campaign afterwards; if the user
    waits, the waiting process settles it."""
    folder = jobs[0].folder
    try:
        number = _number(process.answer(batch.submission(jobs, argv)))
    except LaunchError as error:
        raise LaunchError(batch.explain(str(error))) from error
    files.write_json(folder / "batch.json", {"job": number, "runs": [job.index for job in jobs], "tasks": []})
    tell(f"job {number} is submitted: {len(jobs)} run(s), output in {folder}")
    if batch.wait:
        return
    settlement = batch.settlement(folder, number, (*PROGRAM, "settle", str(folder)))
    if settlement is None:
        tell(f"when it has ended: train-bench settle {folder}")
        return
    try:
        settling = _number(process.answer(settlement))
    except LaunchError as error:  # the runs are under way
        tell(
            f"the job that judges them could not be submitted ({batch.explain(str(error))}); when job {number} has "
            f"ended: train-bench settle {folder}"
        )
        return
    tell(f"job {settling} judges them afterwards; at any time: train-bench settle {folder}")


def run_argv(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """Command that continues the campaign in `folder` inside the batch job, with the options of `config`."""
    overrides = [f"{name}={getattr(config, name).value}" for name in ("on_failure", "on_violation")]
    overrides += ["retry_failed=true"] * config.retry_failed
    overrides += ["trust=true"]  # by who submits them; nodes may not know it
    return (*PROGRAM, "run", with_folder("resume", folder), *overrides)


def was_submitted(folder: Path) -> bool:
    """True if there is a `batch.json` to settle."""
    return (folder / "batch.json").is_file()


def wait(batch: Batch, folder: Path, tell: Callable[[str], None]) -> None:
    """Wait until the submitted job has ended; report changes of its state."""
    number = str(_handed_over(folder)["job"])
    before: tuple[BatchTask, ...] = ()
    heard, pause, accounted = time.monotonic(), POLL_SECONDS, -LONGEST_POLL_SECONDS
    silence, collected = "", time.monotonic()
    try:
        while not before or not all(task.ended for task in before):
            try:
                tasks = _first(batch, batch.queries(number)[:1])
                silence = ""
            except LaunchError as error:
                tasks, silence = (), f" ({error})"
            if not tasks and time.monotonic() - accounted >= LONGEST_POLL_SECONDS:
                accounted, tasks = time.monotonic(), _first(batch, batch.queries(number)[1:])
            if batch.elsewhere and not silence and time.monotonic() - collected >= LONGEST_POLL_SECONDS:
                collected = time.monotonic()
                with contextlib.suppress(LaunchError):  # once more when it has ended
                    _collect(batch, folder, number)
            pause = POLL_SECONDS if tasks != before else min(1.5 * pause, LONGEST_POLL_SECONDS)
            for task in tasks:
                if task not in before:
                    tell(f"job {task.name} {task.how}")
            if tasks:
                before, heard = tasks, time.monotonic()
            elif time.monotonic() - heard > SILENCE_SECONDS:
                raise LaunchError(
                    f"The batch system has not listed job {number} for {SILENCE_SECONDS:g} s{silence}. It may go on; "
                    f"later: train-bench settle {folder}"
                )
            time.sleep(pause)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Interrupted; job {number} continues ({batch.cancellation(number)} cancels it). When it has ended: "
            f"train-bench settle {folder}"
        ) from None


def refuse_under_way(batch: Batch, folder: Path) -> None:
    """Refuse to submit the runs of a campaign again while their job waits or runs."""
    if was_submitted(folder):
        number = str(_handed_over(folder)["job"])
        _ended(batch, number, f"wait for it, or cancel it ({batch.cancellation(number)})")


def settle(batch: Batch, folder: Path) -> None:
    """Record the end of the submitted job. An earlier record stays if the batch system has forgotten the job."""
    handed_over = _handed_over(folder)
    number = str(handed_over["job"])
    tasks = _ended(batch, number, f"settle it afterwards, or cancel it ({batch.cancellation(number)})")
    if tasks:
        if batch.elsewhere:
            _collect(batch, folder, number)
            missing = [
                str(run) for run in handed_over.get("runs", ()) if not (folder / f"result_{run}.txt").exists()
            ]
            if missing and all(task.good for task in tasks):
                raise LaunchError(
                    f"Job {number} is done, but its log lacks the result of run {', '.join(missing)}. It was kept; see "
                    f"{shlex.join(batch.logs(number).argv)}"
                )
        files.write_json(folder / "batch.json", handed_over | {"tasks": [asdict(task) for task in tasks]})
        if batch.elsewhere:
            process.answer(batch.removal(number))


def _collect(batch: Batch, folder: Path, number: str) -> None:
    """Write the files that a job has sent in its log, where they differ from those that are here."""
    try:
        printed = process.answer(batch.logs(number))
    except LaunchError as error:
        raise LaunchError(batch.explain(str(error))) from error
    for name, content in sent_files.received(printed).items():
        path = folder / name
        try:
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                with files.whole_file(path) as file:
                    file.write(content)
        except OSError as error:
            raise files.cannot_write(path, error) from error


def _ended(batch: Batch, number: str, step: str) -> tuple[BatchTask, ...]:
    """End of a job by the batch system. Raises with the next `step` if it has not ended."""
    tasks = _ask(batch, number)
    under_way = [task.name for task in tasks if not task.ended]
    if under_way:
        raise RequestError(f"Job {', '.join(under_way)} has not ended yet; {step}.")
    return tasks


def _handed_over(folder: Path) -> dict[str, Any]:
    """Record that `_hand_over` wrote. The ID of the job goes to commands of the batch system, and has to be a word."""
    content = files.read_json(folder / "batch.json")
    if not isinstance(content, dict) or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", str(content.get("job"))):
        raise LogError(f"{folder / 'batch.json'} has no ID of a submitted job.")
    return content


def _ask(batch: Batch, number: str) -> tuple[BatchTask, ...]:
    queries = batch.queries(number)
    return _first(batch, queries[:1]) or _first(batch, queries[1:])


def _first(batch: Batch, queries: Sequence[tuple[str, ...]]) -> tuple[BatchTask, ...]:
    """The first answer by which all tasks have ended: accounting may lag behind. Else the first that knows any."""
    known: tuple[BatchTask, ...] = ()
    for query in queries:
        try:
            tasks = batch.tasks(process.answer(Launch(argv=query)))
        except LaunchError as error:
            if batch.elsewhere:
                raise LaunchError(batch.explain(str(error))) from error
            continue  # this one is not there, or has forgotten the job
        if tasks and all(task.ended for task in tasks):
            return tasks
        known = known or tasks
    return known


def _number(printed: str) -> str:
    """ID of a job; sbatch appends the name of the cluster if there are several: `12;cluster`, kubectl prints the type
    of an object before it: `jobset.jobset.x-k8s.io/resnet`."""
    return printed.strip().rpartition("/")[2].partition(";")[0]
