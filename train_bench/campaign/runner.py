"""Runner of a campaign: every run of a plan, one after the other, each in fresh processes; resumable."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack

from train_bench.campaign import attempts, lock, metering, one_run
from train_bench.campaign.failures import pending
from train_bench.campaign.hosts import HostsFile, Interruption
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Job
from train_bench.core.usual_cause import usual_cause
from train_bench.errors import Interrupted, LaunchError, Resumable
from train_bench.observers.observer import Observer


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
        for job in _wanted(pending(campaign.jobs, retry_failed=retry_failed), only):
            what = f"{job.numbered(total).capitalize()} in {job.folder}"
            locks.enter_context(lock.held(job.ranks_folder.with_suffix(".lock"), what))
        # What another process finished before the locks were ours is a result.
        missing = pending(campaign.jobs, retry_failed=retry_failed)
        hosts = HostsFile(campaign.folder, others=len(campaign.launcher_config.joining))
        for job in _wanted(missing, only):
            attempts.archive(job)
        observers.campaign_started(total=total, done=total - len(missing))
        energy, interrupted = metering.meter(campaign, say), False
        try:
            if missing:
                energy.begin()
            for job in _wanted(missing, only):
                ran = one_run.carry_out(campaign, job, observers, hosts, say, strict=strict)
                energy.run_over(job, ran.started_ms, ran.stopped_ms)
                if ran.failure is not None and not go_on:
                    raise LaunchError(_stopped(job, ran.failure, total=total))
                yield job
        except KeyboardInterrupt as error:
            interrupted = True
            finished = sum(job.result_file.exists() for job in campaign.jobs)
            behind = any(map(attempts.can_continue, campaign.jobs))
            said = f"{error} " if isinstance(error, Interruption) else ""
            kind = Resumable if said or behind else Interrupted
            raise kind(
                f"{said}Interrupted; {finished} of {total} runs are finished and stay"
                f"{', and one goes on from its checkpoint' if behind else ''}. Continue with: "
                f"train-bench run resume={campaign.folder}"
            ) from None
        finally:
            energy.end()
            hosts.campaign_over(interrupted=interrupted)
            observers.campaign_ended()


def _wanted(jobs: Sequence[Job], only: Sequence[int] | None) -> list[Job]:
    return [job for job in jobs if only is None or job.index in only]


def _stopped(job: Job, failure: str, *, total: int) -> str:
    return (
        f"{job.numbered(total).capitalize()} failed: {failure.removesuffix('.')}. {usual_cause(failure)}"
        f"Output of its ranks is in {job.ranks_folder}. Finished runs stay; train-bench run "
        f"resume={job.folder} continues and counts this run as failed; add retry_failed=true to repeat it."
    )
