"""Start of a campaign: from a request to its plan, and from the plan to its runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from train_bench import __version__
from train_bench.campaign import (
    attempts,
    batch_queue,
    command_trust,
    preflight,
    reference_point,
    runner,
    status,
)
from train_bench.core.escape import plain
from train_bench.core.job import Job
from train_bench.core.secret_filter import refuse_secrets
from train_bench.errors import RequestError
from train_bench.judge import rcp
from train_bench.judge.checks.campaign_checks import differences
from train_bench.observers.observer import Observer, Observers
from train_bench.observers.terminal import Terminal, sweep_job
from train_bench.observers.tracking import NONE, Tracking, named, places
from train_bench.plan import command, discover, interpreter
from train_bench.plan.plan import Plan, Provenance, as_json, make_plan
from train_bench.plan.request import Request
from train_bench.plan.run_config import OnFailure, OnViolation
from train_bench.report.console import make_console, print_line
from train_bench.rules import ruleset

Say = Callable[[str], None]


def plan_of(request: Request, *, reference_runs: bool = False, to_be_run: bool = True) -> Plan:
    """Plan of a request under the rules of its round, with its provenance."""
    config = request.config
    for word in request.overrides:
        name, _, value = word.partition("=")
        refuse_secrets({name.lstrip("+~"): value})
    rules = ruleset.load(config.benchmark.ruleset)
    of_benchmark = rules.benchmark(config.benchmark.benchmark)
    points = rcp.load(of_benchmark, discover.rcp_folders())
    of_user = None if config.command is None else command.words(config.command, Path.cwd())
    if config.python is not None:
        config = replace(config, python=interpreter.resolve(config.python, Path.cwd()))
    ran_with = attempts.ran_with(config.benchmark.reference, of_benchmark.digest, of_user, config.python)
    provenance = Provenance(
        now=datetime.now(UTC),
        version=__version__,
        revision=ran_with["revision"],
        software=ran_with["software"],
        points_digest=rcp.digest(points),
        variant=request.variant,
        cache=discover.cache(),
    )
    planned = make_plan(config, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)
    return replace(planned, request={**planned.request, "overrides": list(request.overrides)})


def carry_out(request: Request, say: Say, warn: Say, *, reference_runs: bool = False) -> Path | None:
    """Run a new campaign, or the missing runs of an existing one. Returns its folder; None if it is not to be judged
    now, because it waits in a queue or only a part of it was run here."""
    run_config = request.config
    planned = _begun(request, warn, reference_runs=reference_runs)
    folder = planned.jobs[0].folder
    config = runner.launcher_config(planned)
    batch = discover.batch(config)
    if batch is not None and not batch.inside(os.environ):
        jobs = runner.pending_jobs(planned, retry_failed=run_config.retry_failed)
        if jobs:
            batch_queue.refuse_under_way(batch, folder)
            options = [f"{name}={getattr(run_config, name).value}" for name in ("on_failure", "on_violation")]
            options += ["retry_failed=true"] * run_config.retry_failed
            options += ["trust=true"]  # by who submits them; nodes may not know it
            batch_queue.hand_over(batch, jobs, options, say)
            if not batch.wait:
                return None
            batch_queue.wait(batch, folder, say)
            batch_queue.settle(batch, folder)
        return folder
    say(f"{len(planned.jobs)} run(s) of {planned.variant} in {folder}")
    for place in tracking_places(planned):
        say(place)
    for overrides in config.joining:
        say(f"run on another host: train-bench join {shlex.quote(str(folder))} {overrides}")
    for _ in each_run(planned, request, say):  # each step is a run, which its observers see
        pass
    for place in tracking_places(planned):
        say(place)
    return folder if run_config.only is None else None


def tracking_places(planned: Plan) -> list[str]:
    """Sentence for each tracker of a campaign; older plans know no tracking."""
    return places(planned.jobs[0].folder, named(planned.request.get("tracking", NONE)))


def _begun(request: Request, warn: Say, *, reference_runs: bool) -> Plan:
    """Plan of a new campaign, or of the resumed one."""
    config = request.config
    if config.resume is not None:
        request.refuse_other_overrides()
        planned = reopen(Path(config.resume), trusted=config.trust, warn=warn)
        batch = discover.batch(runner.launcher_config(planned))
        if batch is not None:
            batch_queue.check(batch)
        return planned
    if config.only is not None or config.trust:
        option = "trust=true" if config.only is None else "only=[RUN,...]"
        raise RequestError(f"{option} is only for an existing campaign; give it with resume=DIR.")
    planned = plan_of(request, reference_runs=reference_runs)
    if reference_runs:
        reference_point.refuse(
            planned, discover.rcp_folders(), replace=config.replace_point, append=config.append_point
        )
    refuse_here(planned)
    begin(planned)
    return planned


def reopen(folder: Path, *, trusted: bool, warn: Say) -> Plan:
    """Plan of a campaign that is resumed; warns if the software differs from it."""
    planned = runner.open_folder(folder)
    command_trust.refuse(planned, trusted=trusted)
    warn_of_differences(planned, warn)
    preflight.refuse_missing_packages(planned.jobs[0])
    preflight.refuse_launcher(runner.launcher_config(planned))
    return planned


def refuse_here(planned: Plan) -> None:
    """Raises `RequestError` for a campaign that cannot be begun here: packages, launcher, queue, trackers,
    folder, data or ranks."""
    job = planned.jobs[0]
    preflight.refuse_missing_packages(job)
    config = runner.launcher_config(planned)
    preflight.refuse_launcher(config)
    batch = discover.batch(config)
    if batch is not None:
        batch_queue.refuse_job(batch, job)
        batch_queue.check(batch)
    named(planned.request["tracking"])
    runner.refuse_folder(job.folder)
    runner.refuse_unprepared(planned)
    if batch is None:
        preflight.refuse_ranks(job)
        preflight.refuse_port(job)


def refusal(request: Request) -> str | None:
    """The sentence with which `run` would refuse a request here that can be planned; None if it would begin."""
    try:
        refuse_here(plan_of(request))
    except RequestError as error:
        return str(error)
    return None


def begin(planned: Plan) -> None:
    """Prepare the data of a campaign and write its plan."""
    runner.prepare_data(planned)
    command_trust.note(planned)  # before other hosts see the plan
    runner.begin(planned)


def each_run(planned: Plan, request: Request, say: Say, *, side: str = "") -> Generator[Job, None, None]:
    """Runs of a campaign, one at each step, by the options of the request."""
    config = request.config
    return runner.run_each(
        planned,
        discover.launcher(runner.launcher_config(planned)),
        _observers(planned, only=config.only, side=side),
        retry_failed=config.retry_failed,
        go_on=config.on_failure is OnFailure["continue"],
        strict=config.on_violation is OnViolation.stop,
        only=config.only,
        say=lambda text: say(side + text),
    )


def _observers(planned: Plan, *, only: Sequence[int] | None, side: str = "") -> Observer:
    """Observers: the forecast, the console, and the trackers of the plan."""
    console = make_console()
    expected = status.forecast_observer(planned, only)
    trackers = [
        Tracking(
            name,
            planned.jobs,
            as_json(planned) | {"jobs": len(planned.jobs)},
            rcp_folders=discover.rcp_folders(),
            online=planned.request["tracking_online"],
            limit_seconds=planned.request["tracking_limit_seconds"],
            say=lambda text: print_line(console, text),
            forecast=lambda: expected.latest,
        )
        for name in named(planned.request.get("tracking", NONE))  # older plans know no tracking
    ]
    job, alone = sweep_job()
    terminal = Terminal(
        console, side=job + side, alone=alone, turns=side != "", forecast=lambda: expected.latest
    )
    return Observers([expected, terminal, *trackers])


def warn_of_differences(planned: Plan, warn: Say) -> None:
    """Warn before any run if a resumed campaign has other software than planned."""
    rules = ruleset.load(planned.ruleset).benchmark(planned.benchmark)
    changed = differences(
        asdict(planned),
        attempts.ran_with(planned.reference, rules.digest, planned.jobs[0].command, planned.jobs[0].python),
    )
    if changed:
        worth = "no result" if rules.strict else "for review"
        warn(
            f"this campaign continues with {plain('; '.join(changed))}. In {planned.ruleset}, runs that differ "
            f"from their plan are {worth}."
        )
