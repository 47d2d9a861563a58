"""Entry point of one rank of a user's own program: `python -m train_bench.own_trainer.command PLAN.json INDEX`.

Starts the program, passes signals on, checks its heartbeat, and records how it ended: in
`ranks/run_<index>/rank_<rank>.json`, in the log if that has no end, and by its own exit code. The program reads its run
from the file that `TRAIN_BENCH_JOB` names. Its output is in `.stdout` and `.stderr` in the same folder. Imports no
torch, which the program may not need.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files, plugins
from train_bench.core.excerpt import last_words
from train_bench.core.job import PLAN_DIGEST, Command, Job, plan_digest, read_job
from train_bench.core.parent_death import end_with_parent
from train_bench.core.signals import ENDING
from train_bench.errors import LaunchError, TrainBenchError
from train_bench.own_trainer import hidden, leftovers, observation
from train_bench.own_trainer.benchmark import Benchmark
from train_bench.own_trainer.data_watch import DataWatch
from train_bench.own_trainer.evaluator import Evaluator
from train_bench.own_trainer.job import SIZES, VARIABLE
from train_bench.own_trainer.lines import Lines
from train_bench.own_trainer.output import OutputInLog
from train_bench.own_trainer.program_log import ProgramLog
from train_bench.run import caches, system
from train_bench.run.rank_environment import VARIABLES, local_rank, rank_and_size
from train_bench.run.rank_state import (
    RankState,
    arrive,
    end_process,
    flush,
)

BEAT_SECONDS = 0.5
"""Period of looking at a program while it gives no signal."""

FIRST_BEAT_SECONDS = 0.1
"""Period of looking at it until its clock runs."""

GRACE_SECONDS = 5.0
"""Time that a program may take to end after its signal; less than whoever signals this process waits."""

REAP_SECONDS = 0.01
"""Period of looking for processes of a program that has ended."""

REST_SECONDS = 0.3
"""Time that processes of a program have to end with it, before they count as left by it."""

DATA_BEFORE_RUN_START = "data_before_run_start"
"""The key under which a log says so; see `data_watch.Opened`."""

LONGEST_WORDS = 200
"""Characters of a program's last line in the sentence that says how it ended."""

WATCHED = frozenset({signal.SIGCHLD, signal.SIGINT, *ENDING})


def main() -> None:
    """Run one rank of one job to its end."""
    end_with_parent()
    job = read_job(Path(sys.argv[1]), int(sys.argv[2]))
    arrived = arrive(job)
    _set_threads(job, os.environ)
    try:
        place = _place(job, os.environ)
    except LaunchError as error:  # it has no rank to file its state under
        files.write_json(arrived, {"error": str(error)})
        sys.exit(f"train-bench: {error}")
    state = RankState(job, place.rank)
    try:
        _conclude(job, place, _run(job, place), state)
    except TrainBenchError as error:
        state.fail(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Rank and number of ranks."""

    rank: int
    size: int
    local_rank: int


def _place(job: Job, environ: Mapping[str, str]) -> Place:
    """Rank and size from the starter's environment variables; a rank planned to be alone needs none."""
    if job.world_size == 1:
        return Place(rank=0, size=1, local_rank=0)
    found = rank_and_size(environ)
    if found is None:
        raise LaunchError(
            f"{job.world_size} ranks were requested, but the environment does not say which of them this process is."
        )
    rank, size = found
    if size != job.world_size:
        raise LaunchError(f"{job.world_size} ranks were requested, but {size} answered.")
    local = local_rank(environ)
    return Place(rank=rank, size=size, local_rank=rank % job.nproc_per_node if local is None else local)


def _set_threads(job: Job, environ: MutableMapping[str, str]) -> None:
    """Set `OMP_NUM_THREADS` to the number of the plan, or remove it: torchrun sets it to 1 where it is not set, which
    a program would take for a request."""
    environ.pop("OMP_NUM_THREADS", None)
    if job.threads_per_rank is not None:
        environ["OMP_NUM_THREADS"] = str(job.threads_per_rank)


# The program's job file.


def _tell(job: Job, place: Place, *, dropped: bool) -> tuple[Path, dict[str, Any]]:
    """Write the job file of the program. Returns its path and content."""
    path = job.ranks_folder / f"job_{place.rank}.json"
    facts = {
        "benchmark": job.benchmark,
        "ruleset": job.config["ruleset"],
        "run": job.index,
        "seed": job.seed,
        **asdict(place),
        "world_size": place.size,
        "folder": str(job.folder),
        "log": str(job.partial_log),
        "target": [asdict(threshold) for threshold in job.target.thresholds],
        "unit": job.unit.value,
        "schedule": asdict(job.schedule),
        "marks": [asdict(mark) for mark in job.schedule.marks()],
        "hyperparameters": _hyperparameters(job),
        "announcement": _announcement(job, place),
        **{name: job.config.get(name) for name in SIZES},
        "data_dir": str(job.config["data_dir"]),
        "drop_caches": dropped,
        "device": job.device.value,
        "precision": job.precision.value,
        "evaluator": job.evaluator is not None,
    }
    del facts["size"]
    files.write_json(path, facts)
    return path, facts


def _hyperparameters(job: Job) -> dict[str, Any]:
    """Hyperparameters as the reference would log them; a benchmark without code states all of them as they are."""
    planned: Mapping[str, Any] = job.config["hyperparameters"]
    package = plugins.module_of("references", job.reference, job.reference_folder)
    if importlib.util.find_spec(f"{package}.config") is None:
        return {key: value for key, value in planned.items() if value is not None}
    import cattrs  # deferred, because it takes time

    kind = importlib.import_module(f"{package}.config").Config
    return dict(cattrs.structure(job.config, kind).hyperparameters.logged())


def _announcement(job: Job, place: Place) -> dict[str, Any]:
    """Values to log before the clock; the machine is described as detected here."""
    machine = system.describe() | {"threads_per_rank": job.threads_per_rank}
    detected = system.platform_name(machine, nodes=job.nodes, device=job.device.value)
    name = job.announcement.get("submission_platform") or detected
    if place.rank == 0 and not (job.folder / "system.json").exists():
        files.write_json(job.folder / "system.json", machine | {"platform": name})
    digest = plan_digest(files.read_json(job.folder / "plan.json"))
    return {**job.announcement, "submission_platform": name, PLAN_DIGEST: digest}


def _environment(job: Job, place: Place, job_file: Path) -> dict[str, str]:
    """Environment of the program: that of this process, without the flag that keeps Python from importing from a
    script's folder; plus its rank as torch.distributed reads it, and its job."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    if place.size > 1:
        environ |= {
            "RANK": str(place.rank),
            "WORLD_SIZE": str(place.size),
            "LOCAL_RANK": str(place.local_rank),
        }
        environ |= _meeting(job, place) if "MASTER_ADDR" not in environ else {}
    elif rank_and_size(environ) not in (None, (0, 1)):  # the allocation around this run has other ranks
        environ = {name: value for name, value in environ.items() if name not in VARIABLES}
    return environ | {VARIABLE: str(job_file)}


def _meeting(job: Job, place: Place) -> dict[str, str]:
    """Rendezvous of the ranks, if their launcher leaves it to them."""
    package = plugins.module_of("launchers", job.launcher, job.launcher_folder)
    if importlib.util.find_spec(f"{package}.rendezvous") is None:
        return {}
    host, port = importlib.import_module(f"{package}.rendezvous").rendezvous(job, first=place.rank == 0)
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port)}


# The running program.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of the program: its exit code (negative is a signal), whether it was terminated from here, and the sentence
    of a call that was `refused`."""

    exit_code: int
    terminated: bool
    refused: str | None


def _run(job: Job, place: Place) -> Ended:
    """Run the program from start to end; no process of it is left afterwards."""
    command = job.command
    assert command is not None
    wanted = job.drop_caches and place.local_rank == 0
    dropped = caches.drop(wanted=wanted, command=job.drop_caches_command)
    job_file, facts = _tell(job, place, dropped=dropped)
    values = {**facts["hyperparameters"], **facts, "job": str(job_file)}
    in_log = place.rank == 0 and OutputInLog.due(facts["ruleset"])
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    refusals: list[str] = []
    evaluator = None
    if job.evaluator is not None:
        copies = job.ranks_folder / f"handed_{place.rank}"
        evaluator = Evaluator(job.evaluator, values, copies, _as_a_child, job)
    evaluate = None if evaluator is None else evaluator.evaluate
    lines = _lines(job, job_file, refusals, evaluate) if place.rank == 0 else None
    watch = DataWatch(Path(facts["data_dir"]), mark=job_file) if place.rank == 0 else None
    environ = _environment(job, place, job_file) | (lines.environment if lines is not None else {})
    leftovers.adopt()  # so that their processor time counts
    seen = observation.Observation(
        observation.path_of(job, place.rank), job.partial_log, watch, evaluator=evaluator
    )
    process = _started(command, values, environ, evaluator, piped=in_log)
    output = OutputInLog(process.stdout, job.partial_log) if in_log else None
    left = 0
    try:
        terminated = _watch(process, _heartbeat(job) if place.rank == 0 else lambda: None, seen)
        if evaluator is not None:
            evaluator.stop()  # its process is none that the program leaves
        left = len(_outliving(str(job_file)))
    finally:
        _signal_group(process, signal.SIGKILL)
        leftovers.kill(str(job_file))
        process.wait()
        if evaluator is not None:
            evaluator.stop()
        _reap()
        for follower in (output, lines):
            if follower is not None:
                follower.close()
    if watch is not None:
        watch.close()
    seen.write(wrote_log=lines is not None and lines.wrote(job.partial_log), left=left)
    if watch is not None:
        _tell_of_the_data(job, watch)
    return Ended(
        exit_code=process.returncode, terminated=terminated, refused=refusals[0] if refusals else None
    )


def _lines(
    job: Job, job_file: Path, refusals: list[str], evaluate: Callable[[str], dict[str, float]] | None
) -> Lines:
    """Follow the calls of a program that is not Python, and those for the evaluator of any. The first refused call ends
    the program."""

    def benchmark() -> Benchmark:
        os.environ[VARIABLE] = str(job_file)
        made = Benchmark(rank=0, world_size=1)
        made.knows_ranks = False
        if evaluate is not None:
            made.evaluate = evaluate
        return made

    def refused(reason: str) -> None:
        refusals.append(reason)
        os.kill(os.getpid(), signal.SIGTERM)

    return Lines(job.ranks_folder, benchmark, refused, evaluate)


def _tell_of_the_data(job: Job, watch: DataWatch) -> None:
    """Log the data files that were opened before the clock started."""
    log = ProgramLog.of(job.partial_log)
    if log.started_ms is not None and log.stops:
        log.add(DATA_BEFORE_RUN_START, asdict(watch.until(log.started_ms)))


def _started(
    command: Command,
    values: Mapping[str, Any],
    environ: Mapping[str, str],
    evaluator: Evaluator | None,
    *,
    piped: bool,
) -> subprocess.Popen[bytes]:
    """The program in a process group of its own, writing where this process writes unless its output is `piped`, and
    without the files of its evaluator where these can be hidden."""
    argv = command.filled(values)

    def begin() -> None:
        if evaluator is not None and evaluator.hides:
            hidden.hide(evaluator.hidden)
        _as_a_child()

    try:
        return subprocess.Popen(
            argv,
            cwd=command.cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else None,
            process_group=0,
            preexec_fn=begin,
        )
    except OSError as error:
        where = f" in {command.cwd}" if not Path(command.cwd).is_dir() else ""
        raise LaunchError(f"{argv[0]} could not be started{where}: {error.strerror}.") from error
    except subprocess.SubprocessError as error:  # of `begin`
        raise LaunchError(
            f"{argv[0]} could not be started: the system refuses now to hide the evaluator's files from it. Repeat "
            "the run."
        ) from error


def _as_a_child() -> None:
    """Take signals, and end with this process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    end_with_parent()


def _outliving(job_file: str) -> set[int]:
    """Processes that still run when their program has ended and they had time to end with it."""
    until = time.monotonic() + REST_SECONDS
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = {*leftovers.running(job_file), *(leftovers.children() or ())}
        if not found or time.monotonic() > until:
            return found
        time.sleep(REAP_SECONDS)


def _reap() -> None:
    """Take the exit of every process of the program, and kill those that still run: this process is the parent of all
    that outlive theirs, and has no other children (Linux). One that cannot be killed in time is left."""
    until = time.monotonic() + GRACE_SECONDS
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            running = leftovers.children()
            if running is None or time.monotonic() > until:
                return
            for number in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(REAP_SECONDS)


def _watch(process: subprocess.Popen[bytes], look: Callable[[], None], seen: observation.Observation) -> bool:
    """Wait for the end of the program, and call `look` meanwhile. A program that does not end on SIGTERM is killed.
    Returns whether it was terminated."""
    kill_at: float | None = None
    while True:
        came = signal.sigtimedwait(WATCHED, BEAT_SECONDS if seen.clock_runs else FIRST_BEAT_SECONDS)
        if process.poll() is not None:
            return kill_at is not None
        if came is not None and came.si_signo != signal.SIGCHLD and kill_at is None:
            _signal_group(process, signal.SIGTERM)
            kill_at = time.monotonic() + GRACE_SECONDS
        if kill_at is not None and time.monotonic() > kill_at:
            _signal_group(process, signal.SIGKILL)
        look()
        seen.poll()


def _heartbeat(job: Job) -> Callable[[], None]:
    """Heartbeat for the parent: from the first line of the program's log on, whenever that or its output grows."""
    written = [job.partial_log, job.ranks_folder / "rank_0.stdout", job.ranks_folder / "rank_0.stderr"]
    before: list[int] = []

    def look() -> None:
        sizes = [_size(path) for path in written]
        if sizes[0] and sizes != before:
            before[:] = sizes
            (job.ranks_folder / "heartbeat").touch()

    return look


def _size(path: Path) -> int:
    """Bytes of a file; 0 where there is none, or none any more."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# The end of the program.


def _conclude(job: Job, place: Place, ended: Ended, state: RankState) -> None:
    """Close the log of a program that has not done so, record how it ended, and end alike. A complete result stays one,
    whatever happens to the program afterwards."""
    log = ProgramLog.of(job.partial_log)
    if log.is_result:
        state.write("finished")
        end_process(0)
    if place.rank == 0:
        log.end()
    if ended.refused is not None:
        state.fail(ended.refused)
    if ended.terminated:
        state.write("terminated")
        end_process(128 + signal.SIGTERM)
    if ended.exit_code < 0:
        state.write("failed", _killed_by(-ended.exit_code))
        _die_of(-ended.exit_code)
    failure = _failure(job, place, ended.exit_code, log)
    if failure is not None:
        state.fail(failure)
    state.write("finished")
    end_process(0)


def _failure(job: Job, place: Place, exit_code: int, log: ProgramLog) -> str | None:
    if exit_code:
        said = _last_words(job, place)
        return f"its program ended with exit code {exit_code}{f': {said}' if said else ''}"
    if place.rank != 0:
        return None
    if not log.lines:
        return (
            "its program ended with exit code 0 and wrote no log; import Benchmark from train_bench there, or write "
            f"the lines into the file that its job names as log ({VARIABLE})"
        )
    if not log.starts or not log.stops:
        return f"its program ended with exit code 0 before {'run_stop' if log.starts else 'run_start'}"
    if log.starts > 1 or log.stops > 1:
        return f"its program logged {log.starts} run_start and {log.stops} run_stop; a run has one of each"
    return None


def _last_words(job: Job, place: Place) -> str:
    """The cause that the program's standard error names."""
    with contextlib.suppress(OSError), (job.ranks_folder / f"rank_{place.rank}.stderr").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2**14))
        return last_words(file.read().decode(errors="replace"), LONGEST_WORDS)
    return ""


def _killed_by(number: int) -> str:
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"killed by signal {number}"


def _die_of(number: int) -> None:
    """End as the program did, so that every launcher reports it as it would report the program."""
    flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    end_process(128 + number)


if __name__ == "__main__":
    main()
