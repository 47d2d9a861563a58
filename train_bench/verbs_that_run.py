"""The verbs that plan and carry out: plan, run, rcp, prepare, join, settle."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench import __version__
from train_bench.errors import RequestError
from train_bench.guard import INVALID, VALID, guarded

if TYPE_CHECKING:
    from train_bench.ask import Request
    from train_bench.job import Job
    from train_bench.judge.entry import Judgement
    from train_bench.plan.plan import Plan
    from train_bench.report.live import Watcher


def plan(words: Sequence[str]) -> int:
    """What a run would do: the decided values and the exact commands; --json for programs."""
    overrides = [word for word in words if word != "--json"]

    def act(request: Request) -> int:
        from train_bench.report import plan as report
        from train_bench.report import table

        both = (request, *([request.against] if request.against else []))
        plans = [_told(_planned(one, to_be_run=False)) for one in both]
        if len(overrides) < len(words):
            print(json.dumps({"plans": plans}, indent=2, default=str))
        else:
            for told in plans:
                report.show(told, table.console())
        return VALID

    return _with_request("plan", overrides, act)


def run(words: Sequence[str]) -> int:
    """Run a campaign of seeds, judge it and score it."""

    def act(request: Request) -> int:
        from train_bench import against

        resumed = request.config.resume
        if request.against is not None or (resumed and against.holds_pair(Path(resumed))):
            return _pair(request)
        return _concluded(_campaign(request), _score)

    return _with_request("run", words, act)


def rcp(words: Sequence[str]) -> int:
    """Run reference seeds and write a reference convergence point."""

    def act(request: Request) -> int:
        _refuse_against(request)
        folder = _campaign(request, reference_runs=True)
        return _concluded(folder, lambda path: _point(path, replace=request.config.replace_point))

    return _with_request("rcp", words, act)


def prepare(words: Sequence[str]) -> int:
    """Prepare the data of a benchmark."""
    return _with_request("prepare", words, _prepare)


def join(words: Sequence[str]) -> int:
    """Take part in a campaign that host 0 runs."""
    parser = argparse.ArgumentParser("train-bench join", description=join.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the campaign")
    parser.add_argument("words", nargs="*", metavar="launcher.OPTION=VALUE", help="which host this is")
    options = parser.parse_args(words)
    from train_bench.join import take_part

    good = take_part(options.folder, options.words, lambda text: print(text, flush=True))
    return VALID if good else INVALID


def settle(words: Sequence[str]) -> int:
    """Record what became of a submitted campaign, judge it and score it."""
    from train_bench import campaign, submit
    from train_bench.plan import discover

    parser = argparse.ArgumentParser("train-bench settle", description=settle.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a campaign")
    folder = parser.parse_args(words).folder.resolve()
    batch = discover.batch(campaign.launcher_config(campaign.open_folder(folder)))
    if batch is None or not submit.was_submitted(folder):
        raise RequestError(f"The campaign in {folder} was not submitted to a batch system; judge it instead.")
    submit.settle(batch, folder)
    return _score(folder)


def _with_request(verb: str, words: Sequence[str], act: Callable[[Request], int]) -> int:
    """Errors of one job of a sweep are told at once, so that the other jobs still run."""
    from train_bench import ask

    return ask.with_request(verb, words, lambda request: guarded(lambda: act(request)))


def _planned(request: Request, *, reference_runs: bool = False, to_be_run: bool = True) -> Plan:
    from train_bench import software
    from train_bench.judge import rcp
    from train_bench.plan import discover
    from train_bench.plan.launch import revision
    from train_bench.plan.plan import Provenance, make_plan
    from train_bench.rules import ruleset

    asked = request.config
    rules = ruleset.load(asked.benchmark.ruleset)
    points = rcp.load(rules.benchmark(asked.benchmark.benchmark), discover.RCP)
    provenance = Provenance(
        now=datetime.now(UTC),
        version=__version__,
        revision=revision(discover.ROOT),
        software=software.found(),
        points_digest=rcp.digest(points),
        variant=request.variant,
        cache=discover.cache(),
    )
    return make_plan(asked, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)


def _campaign(request: Request, *, reference_runs: bool = False) -> Path | None:
    """Run what is asked, or what is missing of a campaign that was begun. Returns its folder; None if it is
    not to be judged now, because it waits in a queue or only a part of it was run here."""
    from train_bench import campaign, submit
    from train_bench.plan import discover

    asked = request.config
    planned = _begun(request, reference_runs=reference_runs)
    folder = planned.jobs[0].folder
    config = campaign.launcher_config(planned)
    batch = discover.batch(config)
    if batch is not None and not batch.inside(os.environ):
        jobs = campaign.todo(planned, retry_failed=asked.retry_failed)
        if jobs:
            submit.refuse_under_way(batch, folder)
            options = [f"{name}={getattr(asked, name).value}" for name in ("on_failure", "on_violation")]
            options += ["retry_failed=true"] * asked.retry_failed
            submit.hand_over(batch, jobs, options, _tell_at_once)
            if not batch.wait:
                return None
            submit.wait(batch, folder, _tell_at_once)
            submit.settle(batch, folder)
        return folder
    print(f"{len(planned.jobs)} run(s) of {planned.variant} in {folder}", flush=True)
    for words in config.joining:
        print(f"type on another host: train-bench join {shlex.quote(str(folder))} {words}", flush=True)
    deque(_each(planned, request), maxlen=0)
    return folder if asked.only is None else None


def _pair(request: Request) -> int:
    """Run two campaigns in turns, score both and compare them."""
    from train_bench import against, campaign
    from train_bench.judge.comparison import compare
    from train_bench.report import comparison as report
    from train_bench.report import table

    folder, plans = _begun_pair(request)
    print(
        f"{plans[0].variant} in {folder / 'a'} takes turns with {plans[1].variant} in {folder / 'b'}",
        flush=True,
    )
    todo, campaigns = [], []
    for side, planned in zip(against.SIDES, plans, strict=True):
        todo.append(campaign.todo(planned, retry_failed=request.config.retry_failed))
        campaigns.append(_each(planned, request, side=f"{side}: "))
    against.take_turns(todo, campaigns, folder)
    code = max(_score(path) for path in against.folders(folder))
    scores = [_judgement(path).score for path in against.folders(folder)]
    try:
        compared = compare(str(folder / "a"), scores[0], str(folder / "b"), scores[1]).as_json()
    except RequestError as error:  # too few runs were asked for, or converged
        print(error)
        return code
    report.show({"comparisons": [report.told(compared, 1)]}, table.console())
    return code


def _begun_pair(request: Request) -> tuple[Path, list[Plan]]:
    """The plans of two new campaigns, or of those that go on, and the folder that holds them."""
    from train_bench import against, campaign, machine
    from train_bench.plan import discover
    from train_bench.report.tracking import named

    if request.config.resume is not None:
        _refuse_other_overrides(request)
        folder = Path(request.config.resume).resolve()
        plans = [campaign.open_folder(path) for path in against.folders(folder)]
        for planned in plans:
            _tell_differences(planned)
        return folder, plans
    assert request.against is not None
    both = [_planned(request), _planned(request.against)]
    against.refuse(*both)
    for planned in both:
        named(planned.request["tracking"])
        config = campaign.launcher_config(planned)
        if config.joining or discover.batch(config) is not None:
            raise RequestError(
                f"against= takes turns on one machine; launcher={planned.launcher} uses others."
            )
    folder = both[0].jobs[0].folder
    plans = [_moved(planned, path) for planned, path in zip(both, against.folders(folder), strict=True)]
    for planned in plans:
        campaign.refuse_folder(planned.jobs[0].folder)
        machine.refuse_ranks(planned.jobs[0])
    for planned in plans:
        campaign.prepare_data(planned)
        campaign.begin(planned)
    return folder, plans


def _moved(planned: Plan, folder: Path) -> Plan:
    return replace(planned, jobs=tuple(replace(job, folder=folder) for job in planned.jobs))


def _each(planned: Plan, request: Request, *, side: str = "") -> Generator[Job, None, None]:
    """The runs of a campaign, one at each step, as the request wants them."""
    from train_bench import campaign
    from train_bench.plan import discover
    from train_bench.plan.config import OnFailure, OnViolation

    asked = request.config
    return campaign.run_each(
        planned,
        discover.launcher(campaign.launcher_config(planned)),
        _watcher(planned, side=side),
        retry_failed=asked.retry_failed,
        go_on=asked.on_failure is OnFailure["continue"],
        strictly=asked.on_violation is OnViolation.stop,
        only=asked.only,
    )


def _watcher(planned: Plan, *, side: str = "") -> Watcher:
    """The console, and the trackers that the plan asks for."""
    from train_bench import sweep
    from train_bench.plan import discover
    from train_bench.plan.plan import as_json
    from train_bench.report.console import PlainConsole
    from train_bench.report.live import Terminal, Together
    from train_bench.report.tracking import Tracking, named

    console = PlainConsole()
    trackers = [
        Tracking(
            name,
            planned.jobs,
            as_json(planned) | {"jobs": len(planned.jobs)},
            rcp_folder=discover.RCP,
            online=planned.request["tracking_online"],
            limit_seconds=planned.request["tracking_limit_seconds"],
            say=lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True),
        )
        for name in named(planned.request.get("tracking", "none"))  # older plans know no tracking
    ]
    job, alone = sweep.side()
    terminal = Terminal(console, side=job + side, alone=alone)
    return Together([terminal, *trackers]) if trackers else terminal


def _begun(request: Request, *, reference_runs: bool) -> Plan:
    """The plan of a new campaign, or of the one that goes on."""
    from train_bench import campaign, machine, reference_point, submit
    from train_bench.plan import discover
    from train_bench.report.tracking import named

    asked = request.config
    if asked.resume is not None:
        _refuse_other_overrides(request)
        planned = campaign.open_folder(Path(asked.resume))
        _tell_differences(planned)
        batch = discover.batch(campaign.launcher_config(planned))
    elif asked.only is not None:
        raise RequestError("only=[RUN,...] is for a campaign that was begun; give it with resume=DIR.")
    else:
        batch = discover.batch(asked.launcher)
        planned = _planned(request, reference_runs=reference_runs)
        if reference_runs:
            reference_point.refuse(planned, discover.RCP, replace=asked.replace_point)
    if batch is not None:
        submit.check(batch)
    if asked.resume is None:
        named(asked.tracking)
        campaign.refuse_folder(planned.jobs[0].folder)
        if batch is None:
            machine.refuse_ranks(planned.jobs[0])
        campaign.prepare_data(planned)
        campaign.begin(planned)
    return planned


def _tell_differences(planned: Plan) -> None:
    """A campaign that goes on with other software than it was planned with says so before anything is run."""
    from train_bench import attempts
    from train_bench.judge.campaign_checks import differences
    from train_bench.plain_text import plain
    from train_bench.rules import ruleset

    rules = ruleset.load(planned.ruleset).benchmark(planned.benchmark)
    found = differences(asdict(planned), attempts.ran_with(rules.digest))
    if found:
        worth = "no result" if rules.strict else "for review"
        print(
            f"train-bench: warning: this campaign goes on with {plain('; '.join(found))}. In {planned.ruleset} runs "
            f"that differ from their plan are {worth}.",
            file=sys.stderr,
        )


def _concluded(folder: Path | None, conclude: Callable[[Path], int]) -> int:
    return VALID if folder is None else conclude(folder)


def _tell_at_once(text: str) -> None:
    print(text, flush=True)


def _refuse_against(request: Request) -> None:
    if request.against is not None:
        raise RequestError("against= is for run and plan; leave it out.")


def _refuse_other_overrides(request: Request) -> None:
    of_resuming = ("resume", "retry_failed", "on_failure", "on_violation", "only", "replace_point")
    others = [word for word in request.overrides if word.partition("=")[0] not in of_resuming]
    if others:
        raise RequestError(
            f"A resumed campaign keeps its plan; leave out {', '.join(others)} or start another campaign."
        )


def _score(folder: Path) -> int:
    from train_bench import papers
    from train_bench.report import table

    judged = _judgement(folder)
    scored = judged.score.as_json()
    papers.write_json(folder / "score.json", scored)
    _page(folder, judged)
    table.show_score(scored, table.console())
    return VALID if judged.score.valid else INVALID


def _page(folder: Path, judged: Judgement) -> None:
    """The report beside the results. They are finished: whatever keeps it from being written costs a warning."""
    try:
        from train_bench.judge.tree import Judged
        from train_bench.plan import discover
        from train_bench.report.page import write
        from train_bench.report.page.facts import Asked

        tree = Judged(entries=(judged,))
        path = folder / "report.html"
        write.write([(folder, tree)], path, asked=Asked(prices={}), rcp_folder=discover.RCP)
        print(f"report: {path}")
    except Exception as error:
        print(f"train-bench: warning: no report was written: {error}", file=sys.stderr)


def _point(folder: Path, *, replace: bool) -> int:
    """The folder may have been begun with leave to replace, in its plan, or get it now."""
    from train_bench import papers, reference_point
    from train_bench.plan import discover

    asked = papers.read_json(folder / "plan.json")["request"]
    replace = replace or asked.get("replace_point", False)  # older plans know no such option
    path = reference_point.add(_judgement(folder), folder, discover.RCP, replace=replace)
    print(f"The reference convergence point is in {path}.")
    return VALID


def _judgement(folder: Path) -> Judgement:
    from train_bench.judge.tree import judge_folder
    from train_bench.plan import definition, discover

    return judge_folder(folder, asked=None, rcp_folder=discover.RCP, changes=definition.changes)


def _prepare(request: Request) -> int:
    from train_bench import campaign, papers

    _refuse_against(request)
    source = request.config.source
    planned = _planned(request, to_be_run=False)
    campaign.prepare_data(planned, papers.own_path(source) if source else None)
    print(f"The data of {planned.variant} are in {planned.jobs[0].config['data_dir']}.")
    return VALID


def _told(planned: Plan) -> dict[str, Any]:
    """A plan as `plan --json` prints it: what will be written, and what a reader wants to know besides."""
    from train_bench import campaign, submit
    from train_bench.plan import discover, earlier
    from train_bench.plan.launch import rank_argv
    from train_bench.plan.plan import as_json
    from train_bench.rules import ruleset

    config, job = campaign.launcher_config(planned), planned.jobs[0]
    launcher, batch = discover.launcher(config), discover.batch(config)
    launches = [launcher.launch(one, rank_argv(one)) for one in planned.jobs]
    files = batch.submission(planned.jobs, submit.run_argv(planned.jobs, [])).files if batch else {}
    written: dict[str, Any] = json.loads(json.dumps(as_json(planned)))
    data = Path(str(job.config["data_dir"]))
    return written | {
        "about": discover.about(planned.variant),
        "target": str(ruleset.load(planned.ruleset).benchmark(planned.benchmark).target),
        "data": f"{data} ({'prepared' if discover.has_data(data) else 'not prepared'})",
        "time": earlier.time_of_a_run(written, job.folder) or "no campaign like it is known here",
        "folder": str(job.folder),
        "commands": [
            shlex.join([*(f"{name}={value}" for name, value in launch.env.items()), *launch.argv])
            for launch in launches
        ],
        "join": [shlex.join(["train-bench", "join", str(job.folder), words]) for words in config.joining],
        "files": {str(path): text for path, text in files.items()},
    }
