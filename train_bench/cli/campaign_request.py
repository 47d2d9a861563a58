"""From a request to a campaign that was carried out: what the commands plan, run, rcp and prepare share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
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
from train_bench.cli import hydra_app, sweep
from train_bench.cli.exit_codes import VALID, guarded
from train_bench.cli.hydra_app import Request
from train_bench.core.escape import plain
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.judge import rcp
from train_bench.judge.checks.campaign_checks import differences
from train_bench.plan import command, discover, options
from train_bench.plan.config import OnFailure, OnViolation
from train_bench.plan.plan import Plan, Provenance, as_json, make_plan
from train_bench.report import help as help_page
from train_bench.report.console import PlainConsole
from train_bench.report.live import Terminal, Together, Watcher
from train_bench.report.tracking import Tracking, named
from train_bench.rules import ruleset

NOTES = """\
Each is an override of Hydra: null is none, lists are [1,2]. Every other value of the configuration can be set, too.
  benchmark.hyperparameters.KEY=VALUE   by the names of mllog; train-bench rules benchmark=NAME has what is allowed
  --cfg job                 prints the whole configuration
  -m, --multirun            one job for every combination of values with commas between them
  --config-dir DIR          configurations of your own: DIR/benchmark/NAME.yaml
  --hydra-help              what else Hydra can do
  --shell-completion        see train-bench --help

Other verbs: train-bench --help. Benchmarks and launchers: train-bench list.
"""


def with_request(verb: str, arguments: Sequence[str], act: Callable[[Request], int]) -> int:
    """Errors of one job of a sweep are told at once, so that the other jobs still run. `--help` is answered here:
    Hydra's own page has no sentence for an option."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(_help(verb), end="")
        return VALID
    return hydra_app.with_request(verb, arguments, lambda request: guarded(lambda: act(request)))


def _help(verb: str) -> str:
    about = (sys.modules[f"train_bench.cli.commands.{verb}"].__doc__ or "").rstrip()
    parts = {
        heading: [(option.name, option.default, option.about) for option in listed]
        for heading, listed in options.parts().items()
    }
    return help_page.page(f"train-bench {verb} [OPTION=VALUE ...]", about, parts, NOTES)


def plan_of(request: Request, *, reference_runs: bool = False, to_be_run: bool = True) -> Plan:
    """What a request comes to under the rules of its round, and with what it was planned."""
    config = request.config
    rules = ruleset.load(config.benchmark.ruleset)
    of_benchmark = rules.benchmark(config.benchmark.benchmark)
    points = rcp.load(of_benchmark, discover.rcp_folders())
    of_user = None if config.command is None else command.words(config.command, Path.cwd())
    ran_with = attempts.ran_with(config.benchmark.reference, of_benchmark.digest, of_user)
    provenance = Provenance(
        now=datetime.now(UTC),
        version=__version__,
        revision=ran_with["revision"],
        software=ran_with["software"],
        points_digest=rcp.digest(points),
        variant=request.variant,
        cache=discover.cache(),
    )
    return make_plan(config, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)


def carry_out(request: Request, *, reference_runs: bool = False) -> Path | None:
    """Run what is asked, or what is missing of a campaign that was begun. Returns its folder; None if it is
    not to be judged now, because it waits in a queue or only a part of it was run here."""
    run_config = request.config
    planned = _begun(request, reference_runs=reference_runs)
    folder = planned.jobs[0].folder
    config = runner.launcher_config(planned)
    batch = discover.batch(config)
    if batch is not None and not batch.inside(os.environ):
        jobs = runner.pending_jobs(planned, retry_failed=run_config.retry_failed)
        if jobs:
            batch_queue.refuse_under_way(batch, folder)
            options = [f"{name}={getattr(run_config, name).value}" for name in ("on_failure", "on_violation")]
            options += ["retry_failed=true"] * run_config.retry_failed
            options += ["trust=true"] * bool(
                command_trust.commands(planned)
            )  # by who submits them; nodes may not know it
            batch_queue.hand_over(batch, jobs, options, tell_at_once)
            if not batch.wait:
                return None
            batch_queue.wait(batch, folder, tell_at_once)
            batch_queue.settle(batch, folder)
        return folder
    print(f"{len(planned.jobs)} run(s) of {planned.variant} in {folder}", flush=True)
    for overrides in config.joining:
        print(f"type on another host: train-bench join {shlex.quote(str(folder))} {overrides}", flush=True)
    for _ in each_run(planned, request):  # each step is a run, told to its watcher
        pass
    return folder if run_config.only is None else None


def _begun(request: Request, *, reference_runs: bool) -> Plan:
    """The plan of a new campaign, or of the one that goes on."""
    config = request.config
    if config.resume is not None:
        refuse_other_overrides(request)
        planned = runner.open_folder(Path(config.resume))
        command_trust.refuse(planned, trusted=config.trust)
        tell_differences(planned)
        batch = discover.batch(runner.launcher_config(planned))
    elif config.only is not None or config.trust:
        option = "trust=true" if config.only is None else "only=[RUN,...]"
        raise RequestError(f"{option} is for a campaign that was begun; give it with resume=DIR.")
    else:
        batch = discover.batch(config.launcher)
        planned = plan_of(request, reference_runs=reference_runs)
        if reference_runs:
            reference_point.refuse(
                planned, discover.rcp_folders(), replace=config.replace_point, append=config.append_point
            )
    preflight.refuse_missing_packages(planned.jobs[0])
    if batch is not None:
        batch_queue.check(batch)
    if config.resume is None:
        named(config.tracking)
        runner.refuse_folder(planned.jobs[0].folder)
        if batch is None:
            preflight.refuse_ranks(planned.jobs[0])
        runner.prepare_data(planned)
        runner.begin(planned)
        command_trust.note(planned)
    return planned


def each_run(planned: Plan, request: Request, *, side: str = "") -> Generator[Job, None, None]:
    """The runs of a campaign, one at each step, as the request wants them."""
    config = request.config
    return runner.run_each(
        planned,
        discover.launcher(runner.launcher_config(planned)),
        _watcher(planned, only=config.only, side=side),
        retry_failed=config.retry_failed,
        go_on=config.on_failure is OnFailure["continue"],
        strictly=config.on_violation is OnViolation.stop,
        only=config.only,
        say=lambda text: tell_at_once(side + text),
    )


def _watcher(planned: Plan, *, only: Sequence[int] | None, side: str = "") -> Watcher:
    """The forecast, the console, and the trackers that the plan asks for."""
    console = PlainConsole()
    expected = status.watcher(planned, only)
    trackers = [
        Tracking(
            name,
            planned.jobs,
            as_json(planned) | {"jobs": len(planned.jobs)},
            rcp_folders=discover.rcp_folders(),
            online=planned.request["tracking_online"],
            limit_seconds=planned.request["tracking_limit_seconds"],
            say=lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True),
            forecast=lambda: expected.latest,
        )
        for name in named(planned.request.get("tracking", "none"))  # older plans know no tracking
    ]
    job, alone = sweep.side()
    terminal = Terminal(
        console, side=job + side, alone=alone, turns=side != "", forecast=lambda: expected.latest
    )
    return Together([expected, terminal, *trackers])


def tell_differences(planned: Plan) -> None:
    """A campaign that goes on with other software than it was planned with says so before anything is run."""
    rules = ruleset.load(planned.ruleset).benchmark(planned.benchmark)
    changed = differences(
        asdict(planned), attempts.ran_with(planned.reference, rules.digest, planned.jobs[0].command)
    )
    if changed:
        worth = "no result" if rules.strict else "for review"
        print(
            f"train-bench: warning: this campaign goes on with {plain('; '.join(changed))}. In {planned.ruleset} runs "
            f"that differ from their plan are {worth}.",
            file=sys.stderr,
        )


def tell_at_once(text: str) -> None:
    print(text, flush=True)


def refuse_against(request: Request) -> None:
    if request.against is not None:
        raise RequestError("against= is for run and plan; leave it out.")


def refuse_command(request: Request) -> None:
    if request.config.command is not None:
        raise RequestError("command= is for run, plan and rcp; leave it out.")


def refuse_other_overrides(request: Request) -> None:
    of_resuming = (
        "resume",
        "retry_failed",
        "on_failure",
        "on_violation",
        "only",
        "replace_point",
        "append_point",
        "trust",
        "store",
    )
    others = [word for word in request.overrides if word.partition("=")[0] not in of_resuming]
    if others:
        raise RequestError(
            f"A resumed campaign keeps its plan; leave out {', '.join(others)} or start another campaign."
        )
