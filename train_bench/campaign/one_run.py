"""One run of a campaign: its ranks are started and watched until they end; then its log gets its name, and its record
is written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from train_bench.campaign import attempts
from train_bench.campaign.failures import BY_BUDGET, PREEMPTED, deaths
from train_bench.campaign.follower import Follower
from train_bench.campaign.hosts import HostsFile, Interruption, interruptions
from train_bench.campaign.opened import Campaign
from train_bench.core import files, rank_messages
from train_bench.core.job import Job
from train_bench.core.secret_filter import redacted
from train_bench.errors import Preempted
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """End of a run: the deaths of its processes (None without any, or if its budget ended it, which is a result like
    any other), and when its clock started and stopped by its log, in milliseconds since the epoch."""

    failure: str | None
    started_ms: int | None
    stopped_ms: int | None


def carry_out(
    campaign: Campaign,
    job: Job,
    observers: Observer,
    hosts: HostsFile,
    say: Callable[[str], None],
    *,
    strict: bool,
) -> Ran:
    """Carry out one run and write its files. One that writes checkpoints is started again when its processes die, in
    one log, but in the job of a batch system that was warned of its end: `Preempted`. `strict` ends it at an
    irreversible rule violation."""
    continues = attempts.can_continue(job)
    restarts = _restarts(job)
    if not continues:
        shutil.rmtree(job.ranks_folder, ignore_errors=True)
    rules, launcher = campaign.rules, campaign.launcher
    clock = ParentClock(earlier_seconds=restarts.earlier_seconds)
    seeds = {other.seed for other in campaign.jobs if other.index != job.index}
    check = LiveCheck(rules, job.result_file, seeds)
    violations = ViolationLimit(check, job, observers.finding, strict=strict)
    log, budget = Follower(job.partial_log), BudgetGuard(job, earlier_seconds=restarts.earlier_seconds)
    observers.run_started(job)

    def witnessed() -> dict[str, Any]:
        return clock.as_json() | observation.read(job)

    with attempts.attempt(job, rules.digest, witnessed, continues=continues) as died:
        again = restarts.goes_on()
        while True:
            if again is not None:
                say(again)
                violations.retire()
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
            if ended_by and job.checkpoint_seconds is not None:
                hosts.wait_for_ends(job)
            interrupted = interruptions(elsewhere) if ended_by else []
            if interrupted:
                raise Interruption(f"{interrupted[0].capitalize()}.")
            if campaign.queue is not None and any(death.how.startswith(PREEMPTED) for death in ended_by):
                raise Preempted
            again = None if violations.violation else restarts.again(ended_by)
            if again is None:
                break
        died += [redacted(str(death)) for death in ended_by]
        exit_file = {"exit_code": ended.exit_code, "deaths": died, BY_BUDGET: by_budget}
        files.write_json(job.ranks_folder / "exit.json", exit_file)
        _name_log(job)
    record, read = read_record(job.result_file, rules)
    files.write_json(job.folder / f"record_{job.index}.json", record.as_json())
    failure = "; ".join(died) or None
    observers.run_ended(job, failure=failure)
    start, stop = (read.events.first(key) for key in ("run_start", "run_stop"))
    return Ran(
        failure=None if by_budget else failure,
        started_ms=start and start.time_ms,
        stopped_ms=stop and stop.time_ms,
    )


def _launch(
    job: Job, launcher: Launcher, log: Follower, watching: Observer, restarts: RestartPolicy
) -> process.Ended:
    """Start the ranks and wait for their end, or for the first observer that has a reason to end them."""

    def tick() -> str | None:
        log.pass_on(watching)
        return log.unreadable or watching.tick()

    try:
        launch = launcher.launch(job, process.rank_argv(job))
        return process.carry_out(
            launch, job.ranks_folder, tick, started=restarts.started, interrupted=restarts.interrupted
        )
    finally:
        leftovers.end(job)


def _restarts(job: Job) -> RestartPolicy:
    """Restarts of a run that writes checkpoints; without any, it is started once."""
    if job.checkpoint_seconds is None:
        return RestartPolicy()
    from train_bench.campaign.restarts import Restarts

    return Restarts(job)


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
