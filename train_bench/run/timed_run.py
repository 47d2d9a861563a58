"""THE CLOCK. The only file that starts or stops it.

What is timed is what the rules time (training_rules, "Run Results"): from the moment before any part
of the system touches the dataset to the moment at which the target is known to be reached,
evaluations included, without a pause. Building and warming up the model come before, on the init
budget. The clock counts blocks between evaluations, never batches: the loop is the task's own.

Once it has stopped, ranks say what they have seen of the run; whatever goes wrong then, the result stays.
"""

from __future__ import annotations

from collections.abc import Callable

from train_bench.errors import LaunchError
from train_bench.job import Job
from train_bench.parallel import Parallel
from train_bench.progress import Progress, Unit
from train_bench.run import caches, order, processors, replicas
from train_bench.run.events import ABORTED, SUCCESS, Log
from train_bench.task import Task


def timed_run(
    task: Task, job: Job, parallel: Parallel, log: Log, stopped: Callable[[], None] = lambda: None
) -> str:
    """Train `task` until the job's target is reached or its schedule ends; returns the status.

    Whatever goes wrong after the clock has started, the log says `run_stop` with `aborted` before the
    exception travels on. `stopped` is called when the clock has stopped by itself: the result is whole then.
    """
    log.cache_clear(caches.drop(asked=job.drop_caches and parallel.local_rank == 0))
    log.announce({**job.announcement, **job.config["hyperparameters"]}, seed=job.seed)
    parallel.barrier()
    log.init_start()
    task.build(job.seed, parallel)
    log.initialized(task.initialized_tensors())
    parallel.barrier()
    log.init_stop()
    before = processors.look()
    log.run_start()
    try:
        status = _train(task, job, parallel, log)
    except BaseException:
        log.run_stop(ABORTED)
        raise
    log.run_stop(status)
    seen = processors.between(before, processors.look())
    stopped()
    log.processor_wait(processors.gather(parallel, seen))
    if parallel.size > 1:
        log.replicas(replicas.compare(parallel))
    log.order(order.gather(parallel, task.samples_taken()))
    return status


def _train(task: Task, job: Job, parallel: Parallel, log: Log) -> str:
    facts = task.open_data()
    log.data(facts)
    status, progress = ABORTED, Progress(samples=0)
    for mark in job.schedule.marks():
        with log.block(mark):
            progress = task.train_until(mark)
        log.extras(mark, progress)
        with log.evaluation(mark):
            quality = parallel.from_rank_zero(task.evaluate())
            reason = job.target.refuse(quality)
            if reason is not None:
                raise LaunchError(f"The reference {job.reference} cannot be judged: {reason}")
            log.accuracy(mark, quality)
        if job.target.reached(quality):
            status = SUCCESS
        if status == SUCCESS or quality.diverged:
            break
    if facts.train_samples is None and job.unit is Unit.SAMPLE:
        log.samples_used(progress)
    return status
