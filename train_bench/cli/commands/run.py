"""Run a campaign of seeds, judge it and score it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train_bench.campaign import ab, command_trust, finish, preflight, runner
from train_bench.cli import campaign_request
from train_bench.cli.exit_codes import VALID
from train_bench.cli.hydra_app import Request
from train_bench.compare.comparison import compare
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.report import comparison as report
from train_bench.report import table
from train_bench.report.tracking import named


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""

    def act(request: Request) -> int:
        resumed = request.config.resume
        if request.against is not None or (resumed and ab.holds_pair(Path(resumed))):
            return _pair(request)
        folder = campaign_request.carry_out(request)
        return VALID if folder is None else finish.score(folder, request.config.store)

    return campaign_request.with_request("run", arguments, act)


def _pair(request: Request) -> int:
    """Run two campaigns in turns, score both and compare them."""
    folder, plans = _begun_pair(request)
    print(
        f"{plans[0].variant} in {folder / 'a'} takes turns with {plans[1].variant} in {folder / 'b'}",
        flush=True,
    )
    todo, turns = [], []
    for side, planned in zip(ab.SIDES, plans, strict=True):
        todo.append(runner.pending_jobs(planned, retry_failed=request.config.retry_failed))
        turns.append(campaign_request.each_run(planned, request, side=f"{side}: "))
    ab.take_turns(todo, turns, folder)
    code = max(finish.score(path, request.config.store) for path in ab.folders(folder))
    scores = [finish.judge_campaign(path).score for path in ab.folders(folder)]
    try:
        compared = compare(str(folder / "a"), scores[0], str(folder / "b"), scores[1]).as_json()
    except RequestError as error:  # too few runs were asked for, or converged
        print(error)
        return code
    report.show({"comparisons": [report.in_sentences(compared, 1)]}, table.console())
    return code


def _begun_pair(request: Request) -> tuple[Path, list[Plan]]:
    """The plans of two new campaigns, or of those that go on, and the folder that holds them."""
    if request.config.resume is not None:
        campaign_request.refuse_other_overrides(request)
        folder = Path(request.config.resume).resolve()
        plans = [runner.open_folder(path) for path in ab.folders(folder)]
        for planned in plans:
            preflight.refuse_missing_packages(planned.jobs[0])
            command_trust.refuse(planned, trusted=request.config.trust)
            campaign_request.tell_differences(planned)
        return folder, plans
    assert request.against is not None
    both = [campaign_request.plan_of(request), campaign_request.plan_of(request.against)]
    ab.refuse(*both)
    for planned in both:
        preflight.refuse_missing_packages(planned.jobs[0])
        named(planned.request["tracking"])
        config = runner.launcher_config(planned)
        if config.joining or discover.batch(config) is not None:
            raise RequestError(
                f"against= takes turns on one machine; launcher={planned.launcher} uses others."
            )
    folder = both[0].jobs[0].folder
    plans = [_moved(planned, path) for planned, path in zip(both, ab.folders(folder), strict=True)]
    for planned in plans:
        runner.refuse_folder(planned.jobs[0].folder)
        preflight.refuse_ranks(planned.jobs[0])
    for planned in plans:
        runner.prepare_data(planned)
        runner.begin(planned)
        command_trust.note(planned)
    return folder, plans


def _moved(planned: Plan, folder: Path) -> Plan:
    return replace(planned, jobs=tuple(replace(job, folder=folder) for job in planned.jobs))
