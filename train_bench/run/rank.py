"""Entry point of one rank: `python -m train_bench.run.rank PLAN.json INDEX`.

Reads its job, joins the other ranks, and hands over to `timed_run.py`. Its last state is in
`ranks/run_<index>/rank_<rank>.json`; its output in `.stdout` and `.stderr` in the same folder.

Ranks that do other work than a timed run (`Job.work`) have an entry point of their own, which calls `main` with it.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import cores, files, plugins
from train_bench.core.job import (
    BATCH_JOB,
    DETERMINISTIC,
    NODE_TEST,
    PLAN_DIGEST,
    RANK_CORES,
    UNEQUAL_HARDWARE,
    Job,
    plan_digest,
    read_job,
)
from train_bench.core.parent_death import end_with_parent
from train_bench.errors import Preempted, TrainBenchError
from train_bench.parallel import Parallel
from train_bench.run import flight_recorder, out_of_memory
from train_bench.run.freed_memory import keep_freed_memory
from train_bench.run.rank_state import RankState, arrive, end_process
from train_bench.run.watchdog import RankWatchdog
from train_bench.task import BenchmarkConfig, Task

if TYPE_CHECKING:
    from train_bench.run.checkpoints import Checkpoints

WARNED_SECONDS = 10.0
"""Time that a rank which was warned of its end waits in a collective: another may be dead already."""

Work = Callable[[Job, Task, Parallel], None]
"""Work of a rank with a task that is not built yet, in place of a timed run."""


def main(work: Work | None = None) -> None:
    """Run one rank of one job to its end: under the clock, or doing `work`. Imports that take seconds come after the
    kernel is set to end this process with its parent, and after the parent knows that it is here."""
    end_with_parent()
    keep_freed_memory()
    job = read_job(Path(sys.argv[1]), int(sys.argv[2]))
    arrived = arrive(job)
    if job.deterministic:
        os.environ.update(DETERMINISTIC)  # read when a GPU is first used
    flight_recorder.switch_on()
    import torch

    from train_bench.run.handshake import handshake

    if job.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        launcher = plugins.module_of("launchers", job.launcher, job.launcher_folder)
        parallel = cast(Parallel, importlib.import_module(f"{launcher}.parallel").join(job))
    except TrainBenchError as error:  # it has no rank yet to file its state under
        files.write_json(arrived, {"error": str(error)})
        sys.exit(f"train-bench: {error}")
    state = RankState(job, parallel.rank)
    beat = job.ranks_folder / "heartbeat" if parallel.rank == 0 else None

    def stalled(sentence: str) -> None:
        flight_recorder.dump(job, parallel.rank)
        state.fail(sentence)

    watchdog = RankWatchdog(job.stall_limit_seconds or math.inf, beat, stalled)
    try:
        handshake(job, parallel)
        parallel = watchdog.of(parallel)
        watchdog.start()
        if job.checkpoint_seconds is not None:
            state.when_warned = lambda: watchdog.hurry(WARNED_SECONDS)
        cores.set_rank_cores(_rank_cores(job, parallel))
        torch.set_num_threads(threads_of(job))
        if work is None:
            _run(job, parallel, state)
        else:
            _do(work, job, parallel, state)
    except Preempted as end:
        state.write("preempted", str(end))
    except TrainBenchError as error:
        state.fail(str(error))
    except Exception as error:
        traceback.print_exc()
        flight_recorder.dump(
            job, parallel.rank
        )  # the first that stalls ends, which is an error of all others
        state.fail(f"{type(error).__name__}: {error}{out_of_memory.next_step(error, job)}")
    parallel.leave()
    watchdog.stop()
    end_process()


def threads_of(job: Job) -> int:
    """CPU threads of this rank: as many as are planned, else one for each of its cores."""
    return job.threads_per_rank or cores.rank_cores()


def _rank_cores(job: Job, parallel: Parallel) -> int:
    """Cores of this rank among the ranks of its host."""
    limits = parallel.gather_objects(cores.limits()) or []
    firsts = (rank - rank % job.nproc_per_node for rank in range(len(limits)))
    shares = [
        cores.share(own, limits[first : first + job.nproc_per_node])
        for own, first in zip(limits, firsts, strict=True)
    ]
    return parallel.from_rank_zero(shares)[parallel.rank]


def _run(job: Job, parallel: Parallel, state: RankState) -> None:
    from train_bench.run import events
    from train_bench.run.timed_run import timed_run

    checkpoints = _checkpoints(job, parallel)
    failed_ms = 0 if checkpoints is None else checkpoints.failed_ms
    machine, detected = _hardware(job, parallel, is_restart=bool(failed_ms))
    name = job.announcement.get("submission_platform") or detected
    config = _config(job)
    digest = plan_digest(files.read_json(Path(sys.argv[1])))
    job = replace(
        job,
        announcement={
            **job.announcement,
            "submission_platform": name,
            PLAN_DIGEST: digest,
            RANK_CORES: machine[RANK_CORES],
            UNEQUAL_HARDWARE: machine[UNEQUAL_HARDWARE] or None,
            BATCH_JOB: machine[BATCH_JOB],
        },
        config={**job.config, "hyperparameters": config.hyperparameters.logged()},
    )
    task = _task(job, config)
    if parallel.rank == 0:
        if not failed_ms:
            events.claim(job.partial_log)
        if not (job.folder / "system.json").exists():
            files.write_json(job.folder / "system.json", machine | {"platform": name})
    log = events.Log(job.partial_log if parallel.rank == 0 else None, events.wall_clock_ms(failed_ms))
    try:
        timed_run(task, job, parallel, log, stopped=lambda: state.write("finished"), checkpoints=checkpoints)
    finally:
        log.close()
        task.close()


def _hardware(job: Job, parallel: Parallel, *, is_restart: bool) -> tuple[dict[str, Any], str]:
    """Description of this host with the accelerators that its ranks use, and the name of all hosts. Ranks that start
    again do so on the clock, and are not tested."""
    from train_bench.run import node_test, system

    own = system.rank_hardware(parallel.device, host=parallel.rank // job.nproc_per_node)
    ranks = parallel.from_rank_zero(parallel.gather_objects(own)) or [own]
    machine = system.describe()
    visible, used = machine["accelerators"], system.used_accelerators(r for r in ranks if r.host == own.host)
    figures: dict[str, Any] | None = None
    warnings = system.unequal(ranks)
    if node_test.is_due(job, parallel) and not is_restart:
        figures, slow = node_test.run(job, parallel, own)
        warnings += slow
    machine |= {
        "accelerators": used,
        "visible_accelerators": visible,
        RANK_CORES: _use_of_cores(job, parallel),
        UNEQUAL_HARDWARE: warnings,
        NODE_TEST: figures,
        BATCH_JOB: system.batch_job(os.environ),
    }
    return machine, system.platform_of(ranks)


def _use_of_cores(job: Job, parallel: Parallel) -> dict[str, int]:
    """Cores of this rank, its threads and, of a benchmark that may have any, its loader processes."""
    data, own = job.config.get("data") or {}, cores.rank_cores()
    used = {"cores": own, "threads": threads_of(job)}
    if "workers" in data:
        used["loader_processes"] = cores.loader_processes(data["workers"], parallel.device.type, own)
    return used


def new_task(job: Job) -> Task:
    """Another task of the job, which is not built yet."""
    return _task(job, _config(job))


def _do(work: Work, job: Job, parallel: Parallel, state: RankState) -> None:
    task = new_task(job)
    try:
        work(job, task, parallel)
        state.write("finished")
    finally:
        task.close()


def _checkpoints(job: Job, parallel: Parallel) -> Checkpoints | None:
    if job.checkpoint_seconds is None:
        return None
    from train_bench.run import checkpoints

    return checkpoints.Checkpoints(job, parallel)


def _config(job: Job) -> BenchmarkConfig:
    import cattrs

    config_type = _module(job, "config").Config
    return cast(BenchmarkConfig, cattrs.structure(job.config, config_type))


def _task(job: Job, config: BenchmarkConfig) -> Task:
    import torch

    torch.backends.cudnn.benchmark = times_convolutions(job, config)
    return cast(Task, _module(job, "task").Task(config))


def times_convolutions(job: Job, config: BenchmarkConfig) -> bool:
    """True if cuDNN times its algorithms for each shape of a convolution. Which is fastest may differ from process to
    process, and the last bits of results with it: not in deterministic ranks, nor where weights are kept, whose quality
    has to be found again. Requests that are served come in any number."""
    exact = job.deterministic or job.keep_weights
    return config.FIXED_SHAPES and not exact and job.work in ("train", "profile")


def _module(job: Job, file: str) -> ModuleType:
    package = plugins.module_of("references", job.reference, job.reference_folder)
    return importlib.import_module(f"{package}.{file}")


if __name__ == "__main__":
    main()
