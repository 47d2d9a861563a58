"""Runner of a campaign: every run of a plan, one after the other, each in fresh processes; resumable."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any

from train_bench.campaign import attempts, lock, metering
from train_bench.campaign.failures import BY_BUDGET, deaths
from train_bench.campaign.follower import Follower
from train_bench.campaign.hosts import HostsFile
from train_bench.campaign.opened import Campaign
from train_bench.core import files, rank_messages
from train_bench.core.job import Job
from train_bench.core.secret_filter import redacted
from train_bench.core.usual_cause import usual_cause
from train_bench.energy.meter import discard_readings
from train_bench.errors import Interrupted, LaunchError
from train_bench.judge.live import LiveCheck
from train_bench.launcher import Launcher
from train_bench.logs.record import read_record
from train_bench.observers.limits import BudgetGuard, RunWatchdog
from train_bench.observers.live_check import ViolationLimit
from train_bench.observers.observer import Observer, Observers, RestartPolicy
from train_bench.observers.parent_clock import ParentClock
from train_bench.own_trainer import leftovers, observation
from train_bench.own_trainer.program_log import ProgramLog
from train_bench.plan import process


def run_each(
    campaign: Campaign,
    observers: Observer,
    *,
    retry_failed: bool,
    go_on: bool = False,
    strict: bool = False,
    only: Sequence[int] | None = None,
    say: Callable[[str], None] = print,
) -> Generator[Job, None, None]:
    """Run every job that has no result yet, or `only` some; one at each step. Stops at a run whose processes die,
    with a sentence that names it and the cause, unless `go_on`; a run that trains to the end of its schedule without
    converging is a result like any other. `strict` ends a run at an irreversible rule violation. `say` gets the
    available energy sources as text.

    Raises `RequestError` if another process carries out one of these runs.
    """
    total = len(campaign.jobs)
    with ExitStack() as locks:
        for job in _wanted(campaign.pending(retry_failed=retry_failed), only):
            what = f"Run {job.index + 1} of {total} in {job.folder}"
            locks.enter_context(lock.held(job.ranks_folder.with_suffix(".lock"), what))
        # What another process finished before the locks were ours is a result.
        missing = campaign.pending(retry_failed=retry_failed)
        hosts = HostsFile(campaign.folder, others=len(campaign.launcher_config.joining))
        for job in _wanted(missing, only):
            _archive_attempt(job)
        observers.campaign_started(total=total, done=total - len(missing))
        energy = metering.meter(campaign, say)
        try:
            if missing:
                energy.begin()
            for job in _wanted(missing, only):
                violations = _violation_limit(campaign, job, observers, strict=strict)
                failure = _run(campaign, job, observers, hosts, violations, say)
                if energy.reads:
                    energy.run_over(job, *metering.timed(job))
                if failure is not None and not go_on:
                    raise LaunchError(_stopped(job, failure, total=total))
                yield job
        except KeyboardInterrupt:
            finished = sum(job.result_file.exists() for job in campaign.jobs)
            raise Interrupted(
                f"Interrupted; {finished} of {total} runs are finished and stay. Continue with: "
                f"train-bench run resume={campaign.folder}"
            ) from None
        finally:
            energy.end()
            hosts.campaign_over()
            observers.campaign_ended()


def _wanted(jobs: Sequence[Job], only: Sequence[int] | None) -> list[Job]:
    return [job for job in jobs if only is None or job.index in only]


def _violation_limit(campaign: Campaign, job: Job, observers: Observer, *, strict: bool) -> ViolationLimit:
    others = {other.seed for other in campaign.jobs if other.index != job.index}
    return ViolationLimit(
        LiveCheck(campaign.rules, job.result_file, others), job, observers.finding, strict=strict
    )


def _run(
    campaign: Campaign,
    job: Job,
    observers: Observer,
    hosts: HostsFile,
    violations: ViolationLimit,
    say: Callable[[str], None],
) -> str | None:
    """Carry out one run and write its files. Returns the deaths of its processes; None without any, or if its budget
    ended it, which is a result like any other. One that writes checkpoints is started again instead, in one log."""
    shutil.rmtree(job.ranks_folder, ignore_errors=True)
    observers.run_started(job)
    log, budget, restarts = Follower(job.partial_log), BudgetGuard(job), _restarts(job)
    rules, launcher, clock = campaign.rules, campaign.launcher, ParentClock()

    def witnessed() -> dict[str, Any]:
        return clock.as_json() | observation.read(job)

    with attempts.attempt(job, rules.digest, witnessed) as died:
        while True:
            rank_messages.make_token(job.ranks_folder)  # each start has a folder of its own
            watching = Observers([clock, observers, violations, budget, RunWatchdog(job), hosts, restarts])
            hosts.run_starts(job)
            ended = _launch(job, launcher, log, watching, restarts)
            by_budget = ended.reason is not None and ended.reason == budget.reason
            if by_budget:
                ProgramLog.of(job.partial_log).end()
            log.pass_on(watching)
            elsewhere = hosts.run_over(job, failed=ended.exit_code != 0)
            ended_by = deaths(job, launcher, ended, elsewhere, whole=log.whole)
            again = None if violations.violation else restarts.again(ended_by)
            if again is None:
                break
            say(again)
            violations.retire()
        died += [redacted(str(death)) for death in ended_by]
        exit_file = {"exit_code": ended.exit_code, "deaths": died, BY_BUDGET: by_budget}
        files.write_json(job.ranks_folder / "exit.json", exit_file)
        _name_log(job)
    record, _ = read_record(job.result_file, rules)
    files.write_json(job.folder / f"record_{job.index}.json", record.as_json())
    failure = "; ".join(died) or None
    observers.run_ended(job, failure=failure)
    return None if by_budget else failure


def _launch(
    job: Job, launcher: Launcher, log: Follower, watching: Observer, restarts: RestartPolicy
) -> process.Ended:
    """Start the ranks and wait for their end, or for the first observer that has a reason to end them."""

    def tick() -> str | None:
        log.pass_on(watching)
        return log.unreadable or watching.tick()

    try:
        launch = launcher.launch(job, process.rank_argv(job))
        return process.carry_out(launch, job.ranks_folder, tick, started=restarts.started)
    finally:
        end_leftovers(job)


def _restarts(job: Job) -> RestartPolicy:
    """Restarts of a run that writes checkpoints; without any, it is started once."""
    if job.checkpoint_seconds is None:
        return RestartPolicy()
    from train_bench.campaign.restarts import Restarts

    return Restarts(job)


def end_leftovers(job: Job) -> None:
    """End processes that a command started on this host and whose own terminator was killed."""
    if job.command is not None:
        leftovers.kill(str(job.ranks_folder / "job_"))


def _stopped(job: Job, failure: str, *, total: int) -> str:
    return (
        f"Run {job.index + 1} of {total} failed: {failure.removesuffix('.')}. {usual_cause(failure)}"
        f"Output of its ranks is in {job.ranks_folder}. Finished runs stay; train-bench run "
        f"resume={job.folder} continues and counts this run as failed; add retry_failed=true to repeat it."
    )


def _name_log(job: Job) -> None:
    """Give the log of a run that has ended its name; a run that never wrote one leaves an empty log."""
    job.partial_log.touch()
    try:
        with contextlib.suppress(OSError), files.opened(job.partial_log) as file:
            os.fsync(file.fileno())
        job.partial_log.replace(job.result_file)
        files.sync_folder(job.folder)
    except OSError as error:
        raise files.cannot_write(job.result_file, error) from error


def _archive_attempt(job: Job) -> None:
    """Archive the logs of an earlier attempt at a run that is about to be repeated, under `failed/`."""
    discard_readings(job)
    for log in (job.result_file, job.partial_log):
        if log.exists():
            folder = job.folder / "failed"
            folder.mkdir(exist_ok=True)
            attempt = len(list(folder.glob(f"result_{job.index}_*.txt"))) + 1
            log.rename(folder / f"result_{job.index}_{attempt}.txt")
            (job.folder / f"record_{job.index}.json").unlink(missing_ok=True)
