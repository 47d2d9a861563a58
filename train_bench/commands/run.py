"""Run a campaign of seeds, judge it and score it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train_bench import ab_campaign, campaign, machine, trust
from train_bench.commands import campaigns, conclusion
from train_bench.compose import Request
from train_bench.errors import RequestError
from train_bench.exit_codes import VALID
from train_bench.judge.comparison import compare
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.report import comparison as report
from train_bench.report import table
from train_bench.report.tracking import named


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""

    def act(request: Request) -> int:
        resumed = request.config.resume
        if request.against is not None or (resumed and ab_campaign.holds_pair(Path(resumed))):
            return _pair(request)
        folder = campaigns.carry_out(request)
        return VALID if folder is None else conclusion.score(folder, request.config.store)

    return campaigns.with_request("run", arguments, act)


def _pair(request: Request) -> int:
    """Run two campaigns in turns, score both and compare them."""
    folder, plans = _begun_pair(request)
    print(
        f"{plans[0].variant} in {folder / 'a'} takes turns with {plans[1].variant} in {folder / 'b'}",
        flush=True,
    )
    todo, turns = [], []
    for side, planned in zip(ab_campaign.SIDES, plans, strict=True):
        todo.append(campaign.todo(planned, retry_failed=request.config.retry_failed))
        turns.append(campaigns.each_run(planned, request, side=f"{side}: "))
    ab_campaign.take_turns(todo, turns, folder)
    code = max(conclusion.score(path, request.config.store) for path in ab_campaign.folders(folder))
    scores = [conclusion.judgement(path).score for path in ab_campaign.folders(folder)]
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
        campaigns.refuse_other_overrides(request)
        folder = Path(request.config.resume).resolve()
        plans = [campaign.open_folder(path) for path in ab_campaign.folders(folder)]
        for planned in plans:
            machine.refuse_missing_packages(planned.jobs[0])
            trust.refuse(planned, trusted=request.config.trust)
            campaigns.tell_differences(planned)
        return folder, plans
    assert request.against is not None
    both = [campaigns.plan_of(request), campaigns.plan_of(request.against)]
    ab_campaign.refuse(*both)
    for planned in both:
        machine.refuse_missing_packages(planned.jobs[0])
        named(planned.request["tracking"])
        config = campaign.launcher_config(planned)
        if config.joining or discover.batch(config) is not None:
            raise RequestError(
                f"against= takes turns on one machine; launcher={planned.launcher} uses others."
            )
    folder = both[0].jobs[0].folder
    plans = [_moved(planned, path) for planned, path in zip(both, ab_campaign.folders(folder), strict=True)]
    for planned in plans:
        campaign.refuse_folder(planned.jobs[0].folder)
        machine.refuse_ranks(planned.jobs[0])
    for planned in plans:
        campaign.prepare_data(planned)
        campaign.begin(planned)
        trust.note(planned)
    return folder, plans


def _moved(planned: Plan, folder: Path) -> Plan:
    return replace(planned, jobs=tuple(replace(job, folder=folder) for job in planned.jobs))
