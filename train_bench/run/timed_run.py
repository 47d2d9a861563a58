"""Timed run of a reference: build, train and evaluate the task of a job, and log it.

After the clock has stopped, ranks report their observations of the run; an error there does not affect the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from train_bench.core.job import Job
from train_bench.parallel import Parallel
from train_bench.progress import Unit
from train_bench.run import (
    caches,
    data_waits,
    drawn_samples,
    loaded_code,
    memory,
    order,
    processors,
    rates,
    replicas,
    weights,
)
from train_bench.run.clock import Clock
from train_bench.run.events import Log
from train_bench.task import Task

if TYPE_CHECKING:
    from train_bench.run.checkpoints import Checkpoints


def timed_run(
    task: Task,
    job: Job,
    parallel: Parallel,
    log: Log,
    stopped: Callable[[], None] = lambda: None,
    checkpoints: Checkpoints | None = None,
) -> str:
    """Train `task` until the job's target is reached or its schedule ends; returns the status.

    After any error on the clock, the log gets `run_stop` with `aborted` before the
    exception travels on. `stopped` is called when the clock has stopped by itself: the result is complete then.
    With `checkpoints`, a run whose processes died continues, and the log of one that fails stays open.
    """
    clock = Clock(log, parallel, job.target, whose=f"The reference {job.reference}")
    kept = weights.require_export(task, job) if job.keep_weights else None
    try:
        if checkpoints is None or not checkpoints.failed_ms:
            wanted = job.drop_caches and parallel.local_rank == 0
            log.cache_clear(caches.drop(wanted=wanted, command=job.drop_caches_command))
            log.announce({**job.announcement, **job.config["hyperparameters"]}, seed=job.seed)
            clock.init_start()
            task.build(job.seed, parallel)
            log.initialized(task.initialized_tensors())
            clock.init_stop()
            before = clock.run_start(job.schedule.marks(), processors.read_cpu_times)
        else:
            before = processors.read_cpu_times()
            clock.go_on(checkpoints.restore(task, log))
        facts = task.open_data()
        if checkpoints is None or checkpoints.begin(log):
            log.data(facts)
        if checkpoints is not None:
            checkpoints.stop_when_warned(task)
        samples = 0
        for mark in clock.blocks():
            progress = task.train_until(mark)
            if checkpoints is not None and progress.samples < mark.count:
                checkpoints.leave(task, log, mark, progress.samples)
            clock.eval_start(progress)
            clock.report(task.evaluate(), "evaluate()")
            samples = progress.samples
            if checkpoints is not None and not clock.is_decided:
                checkpoints.save_if_due(task, log, mark, samples)
        took = facts.train_samples is None and job.unit is Unit.SAMPLE
        status = clock.run_stop(train_samples=samples if took else None)
    except BaseException:
        if checkpoints is None:
            clock.abort()
        raise
    seen = processors.cpu_times_between(before, processors.read_cpu_times())
    peak = memory.peak_bytes(parallel.device)
    stopped()
    log.processor_wait(processors.gather(parallel, seen))
    log.peak_memory(memory.gather(parallel, peak))
    taken = task.samples_taken()
    log.data_wait(data_waits.gather(parallel, taken.waited))
    log.order(order.gather(parallel, taken))
    log.learning_rates(rates.told_by(task))
    log.replicas(replicas.compare(parallel))
    code = loaded_code.describe([job.reference_folder, job.launcher_folder])
    log.loaded_code(loaded_code.gather(parallel, code))
    if kept is not None:
        log.kept_weights(weights.write_weights(kept, job, parallel))
    drawn_samples.write_samples(task, job, parallel)
    return status
