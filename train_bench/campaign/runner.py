"""Runner of a campaign: every run of a plan, one after the other, each in fresh processes; resumable."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import cattrs

from train_bench.campaign import attempts, lock, preflight
from train_bench.campaign.failures import BY_BUDGET, deaths, failed_runs
from train_bench.campaign.hosts import HostsFile
from train_bench.core import begun_plans, files, rank_messages
from train_bench.core.event import Event
from train_bench.core.job import OF_ONE_JOB, WEIGHTS, Job
from train_bench.core.secret_filter import redacted
from train_bench.core.usual_cause import usual_cause
from train_bench.energy.meter import Meter, discard_readings, parse_options
from train_bench.errors import Interrupted, LaunchError, RequestError
from train_bench.judge.live import LiveCheck
from train_bench.launcher import Launcher, LauncherConfig
from train_bench.logs.log import LINE_END, parse_line, read
from train_bench.logs.record import read_record
from train_bench.observers.limits import BudgetGuard, RunWatchdog
from train_bench.observers.live_check import ViolationLimit
from train_bench.observers.observer import Observer, Observers, RestartPolicy
from train_bench.observers.parent_clock import ParentClock
from train_bench.own_trainer import leftovers, observation
from train_bench.own_trainer.program_log import LARGEST_BYTES, ProgramLog, not_a_log
from train_bench.plan import discover, process
from train_bench.plan.plan import Plan, as_json, from_json, jobs_to_do
from train_bench.rules import ruleset

WRITTEN = ("ranks", "attempts", "power", "checkpoints", WEIGHTS)
"""Folders of a campaign in which it writes."""


def begin(plan: Plan) -> None:
    """Write the plan into a folder of its own; a folder that already holds a campaign is refused."""
    folder = plan.jobs[0].folder
    refuse_folder(folder)
    files.write_json(folder / "plan.json", as_json(plan))


def refuse_folder(folder: Path) -> None:
    """Raise `RequestError` if no campaign can begin: the folder is not empty, or cannot be written."""
    preflight.refuse_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise RequestError(
            f"The folder {folder} is not empty. Choose another with output=DIR"
            + (f", or continue its campaign with resume={folder}." if _holds_plan(folder) else ".")
        )


def open_folder(folder: Path) -> Plan:
    """Plan of an existing campaign, with its present folder.

    It may be somebody else's file: raises `RequestError` if a new campaign would be refused for the same reason, for
    names that are unknown here, and if the folder holds links, through which it would write elsewhere.
    """
    if not _holds_plan(folder):
        raise RequestError(f"{folder} is not a campaign (no plan.json); give the folder of one.")
    written = files.read_json(folder / "plan.json")
    if isinstance(written, dict):
        begun_plans.find_benchmark(written, str(folder))
    try:
        plan = from_json(written, folder)
        reason = validate_plan(plan)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"{folder / 'plan.json'} is not a plan of this version of train_bench; start a new campaign."
        ) from error
    if reason is not None:
        raise RequestError(f"The campaign in {folder} cannot continue: {reason}")
    _refuse_links(folder)
    return with_code_of_this_host(plan)


def with_code_of_this_host(plan: Plan) -> Plan:
    """The plan, whose reference and launcher are in the folders where they are found here."""
    reference = discover.folder_of("references", plan.reference)
    launcher = discover.folder_of("launchers", plan.launcher)
    jobs = (replace(job, reference_folder=reference, launcher_folder=launcher) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs))


def validate_plan(plan: Plan) -> str | None:
    """Validate a plan that was read; returns the reason against it as a sentence. Raises as `from_json` for an
    invalid file."""
    rules = ruleset.load(plan.ruleset)
    rules.benchmark(plan.benchmark)
    if [job.index for job in plan.jobs] != list(range(len(plan.jobs))) or not plan.jobs:
        return (
            f"plan.json numbers its runs {[job.index for job in plan.jobs]}; they have to be counted from 0."
        )
    for job in plan.jobs:
        if job.work != "train":
            return f"plan.json is for the work '{job.work}', not for a campaign."
        for name in ("benchmark", "reference", "launcher"):
            if getattr(job, name) != getattr(plan, name):
                return (
                    f"plan.json is for {getattr(plan, name)}, but its run {job.index} is for "
                    f"{getattr(job, name)}."
                )
    job, config = plan.jobs[0], launcher_config(plan)
    for name, configured, planned in (
        ("ruleset", ruleset.load(str(job.config["ruleset"])).name, rules.name),
        ("launcher", config.name, plan.launcher),
        ("nodes", config.nodes, job.nodes),
        ("nproc_per_node", config.nproc_per_node, job.nproc_per_node),
    ):
        if configured != planned:
            return f"plan.json has {name}={planned}, but its runs are configured with {configured}."
    benchmark = cattrs.structure(job.config, discover.reference_config(plan.reference))
    for other in plan.jobs[1:]:  # trust and preflight look at the first
        if replace(other, **{name: getattr(job, name) for name in OF_ONE_JOB}) != job:
            return f"plan.json has another run {other.index} than run 0, in more than its seed."
    return discover.launcher(config).refuse(benchmark)


def _refuse_links(folder: Path) -> None:
    """Refuse links to other places among the files that a campaign writes: its own, the folders of its ranks, its
    attempts."""
    for path in (*folder.iterdir(), *(path for name in WRITTEN for path in folder.glob(f"{name}/*"))):
        if path.is_symlink():
            raise RequestError(
                f"{path} is a link, but a campaign writes only into its own folder. Remove the link and "
                "try again."
            )


def launcher_config(plan: Plan, **changes: str) -> LauncherConfig:
    """Configuration of the launcher that a plan names, with the `changes` of one host."""
    options = {**plan.jobs[0].launcher_config, **changes}
    return cattrs.structure(options, discover.launcher_config(plan.launcher))


def refuse_missing_data(plan: Plan) -> None:
    """Raise `RequestError` if the data are not here. For a plan of somebody else's, which does not decide where this
    host writes."""
    job = plan.jobs[0]
    folder = Path(str(job.config.get("data_dir")))
    if job.command is None and not folder.is_dir():
        words = shlex.join([f"benchmark={plan.variant}", f"data_dir={folder}"])
        raise RequestError(
            f"The data of {plan.variant} are not on this host: there is no folder {folder}. Run "
            f"train-bench prepare {words} here, then try again."
        )


def refuse_unprepared(plan: Plan) -> None:
    """Raise `RequestError` if the data are not prepared and `prepare` needs the data set as it is distributed."""
    job = plan.jobs[0]
    if job.command is not None:
        return
    config = cattrs.structure(job.config, discover.reference_config(job.reference))
    folder, origin = Path(str(config.data_dir)), config.distributed_data()
    if origin is not None and not discover.has_data(folder):
        words = shlex.join([f"benchmark={plan.variant}", f"data_dir={folder}"])
        raise RequestError(
            f"The data of {plan.variant} are not prepared in {folder}. They come from the data set '{origin}' as it is "
            f"distributed, which is not downloaded for you: train-bench prepare {words} source=FOLDER_THAT_HOLDS_IT. "
            "Nothing was started."
        )


def prepare_data(plan: Plan, source: Path | None = None) -> None:
    """Prepare the data before any run; returns at once if they are prepared. Of several processes that want the same
    data, one prepares them and the others wait. A command's data are its own affair."""
    job = plan.jobs[0]
    if job.command is not None:
        return
    config = cattrs.structure(job.config, discover.reference_config(job.reference))
    folder = Path(str(config.data_dir))
    if not folder.is_dir():
        preflight.refuse_folder(folder, "data_dir")
    with lock.alone(folder):
        discover.prepare(job.reference)(config, folder, source)


def pending_jobs(plan: Plan, *, retry_failed: bool) -> tuple[Job, ...]:
    """Jobs without a result, and the failed ones if they are to be repeated."""
    return jobs_to_do(plan.jobs, retry_failed=retry_failed, failed=failed_runs(plan.jobs))


def run_all(plan: Plan, launcher: Launcher, observers: Observer, **options: Any) -> None:
    """Run `run_each` to its end."""
    for _ in run_each(plan, launcher, observers, **options):
        pass


def run_each(
    plan: Plan,
    launcher: Launcher,
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
    with ExitStack() as locks:
        for job in _wanted(pending_jobs(plan, retry_failed=retry_failed), only):
            what = f"Run {job.index + 1} of {len(plan.jobs)} in {job.folder}"
            locks.enter_context(lock.held(job.ranks_folder.with_suffix(".lock"), what))
        # What another process finished before the locks were ours is a result.
        missing = pending_jobs(plan, retry_failed=retry_failed)
        hosts = HostsFile(plan.jobs[0].folder, others=len(launcher_config(plan).joining))
        for job in _wanted(missing, only):
            _archive_attempt(job)
        observers.campaign_started(total=len(plan.jobs), done=len(plan.jobs) - len(missing))
        energy = meter(plan, say)
        try:
            if missing:
                energy.begin()
            for job in _wanted(missing, only):
                violations = _violation_limit(plan, job, observers, strict=strict)
                failure = _run(job, launcher, observers, hosts, violations, say)
                if energy.reads:
                    energy.run_over(job, *timed(job))
                if failure is not None and not go_on:
                    raise LaunchError(_stopped(job, failure, total=len(plan.jobs)))
                yield job
        except KeyboardInterrupt:
            finished = sum(job.result_file.exists() for job in plan.jobs)
            raise Interrupted(
                f"Interrupted; {finished} of {len(plan.jobs)} runs are finished and stay. Continue with: "
                f"train-bench run resume={plan.jobs[0].folder}"
            ) from None
        finally:
            energy.end()
            hosts.campaign_over()
            observers.campaign_ended()


def meter(plan: Plan, say: Callable[[str], None], *, host: int = 0) -> Meter:
    """Energy meter of this host. If a launcher starts ranks on hosts that nobody joins by hand, there is none,
    because the others would be missing."""
    wished, job = parse_options(plan.request), plan.jobs[0]
    options = job.launcher_config
    at_once = (
        1 if options.get("array") else options.get("parallel") or 1
    )  # runs of one batch job, on hosts of their own
    reached = job.nodes * at_once
    if wished is not None and reached > 1 and not launcher_config(plan).joining:
        say(
            f"energy: not measured, because launcher={plan.launcher} starts ranks on {reached} hosts and "
            "only this one could be read."
        )
        wished = None
    return Meter(wished, job.folder, say, host=host, hosts=job.nodes)


def timed(job: Job) -> tuple[int | None, int | None]:
    """Start and stop of the clock of a run, in milliseconds since the epoch."""
    for path in (job.result_file, job.partial_log, job.result_file):  # it may be given its name just now
        if path.is_file():
            first: dict[str, int] = {}
            for event in read(path).events:
                first.setdefault(event.key, event.time_ms)
            return first.get("run_start"), first.get("run_stop")
    return None, None


def _wanted(jobs: Sequence[Job], only: Sequence[int] | None) -> list[Job]:
    return [job for job in jobs if only is None or job.index in only]


def _violation_limit(plan: Plan, job: Job, observers: Observer, *, strict: bool) -> ViolationLimit:
    rules = ruleset.load(plan.ruleset).benchmark(job.benchmark)
    others = {other.seed for other in plan.jobs if other.index != job.index}
    return ViolationLimit(LiveCheck(rules, job.result_file, others), job, observers.finding, strict=strict)


def _run(
    job: Job,
    launcher: Launcher,
    observers: Observer,
    hosts: HostsFile,
    violations: ViolationLimit,
    say: Callable[[str], None],
) -> str | None:
    """Carry out one run and write its files. Returns the deaths of its processes; None without any, or if its budget
    ended it, which is a result like any other. One that writes checkpoints is started again instead, in one log."""
    shutil.rmtree(job.ranks_folder, ignore_errors=True)
    rank_messages.make_token(job.ranks_folder)
    observers.run_started(job)
    log, budget, restarts = _Follower(job.partial_log), BudgetGuard(job), _restarts(job)
    rules = ruleset.load(str(job.config["ruleset"])).benchmark(job.benchmark)
    clock = ParentClock()

    def witnessed() -> dict[str, Any]:
        return clock.as_json() | observation.read(job)

    with attempts.attempt(job, rules.digest, witnessed) as died:
        while True:
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
    job: Job, launcher: Launcher, log: _Follower, watching: Observer, restarts: RestartPolicy
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


def _holds_plan(folder: Path) -> bool:
    return (folder / "plan.json").is_file()


class _Follower:
    """Reader of a growing log; a line counts once it is complete. `whole` is true once the log has its end,
    `unreadable` the reason that it is no log, as a sentence."""

    def __init__(self, path: Path) -> None:
        self.whole = False
        self.unreadable: str | None = None
        self._path = path
        self._size = -1
        self._offset = 0
        self._line = 0

    def pass_on(self, observer: Observer) -> None:
        """Pass new events to `observer`."""
        for event in self._new_events():
            observer.event(event)

    def _new_events(self) -> list[Event]:
        try:
            with files.opened(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if size == self._size:  # half a line, however long, is read once
                    return []
                self._size = size
                file.seek(self._offset)
                new = file.read(LARGEST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.unreadable = str(not_a_log(self._path, error))
            return []
        if size < self._offset:
            self.unreadable = f"its log {self._path} has become shorter; a program only adds lines to it"
        if self._offset + len(new) >= LARGEST_BYTES:
            self.unreadable = f"its log {self._path} has more than {LARGEST_BYTES} bytes"
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = []
        for text in LINE_END.split(whole.decode("utf-8", errors="replace"))[:-1]:
            self._line += 1
            event = parse_line(text, self._line)
            if isinstance(event, Event):
                events.append(event)
                self.whole |= event.key == "run_stop"
        return events
