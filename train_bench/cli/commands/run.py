"""Run a campaign of seeds, judge it and score it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.campaign import ab, finish, start, watching
from train_bench.campaign.failures import pending
from train_bench.campaign.machine_history import machine_history
from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import answer_of, say, show, unfinished, warn
from train_bench.compare.comparison import compare_campaigns
from train_bench.compare.differences import differences_as_json
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.report import comparison as report
from train_bench.report.console import print_line


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(composing.OverrideParser("run"), arguments)
    return composing.with_request("run", options, overrides, _run)


def _run(request: Request) -> Answer:
    finished = carry_out(request)
    if not finished:
        return unfinished()
    answer = answer_of(finished)
    return (
        answer
        if len(finished) == 1
        else replace(answer, content=answer.content | _compared(finished), show=_show_pair)
    )


def carry_out(request: Request) -> list[finish.Finished]:
    """Run and finish the campaign of a request, or the two of a pair; none that is not to be judged now."""
    resumed = request.config.resume
    if request.against is not None or (resumed and ab.holds_pair(Path(resumed))):
        folders = _pair(request)
    else:
        folder = start.carry_out(request, say, warn)
        folders = () if folder is None else (folder,)
    return [finish.finish(folder, request.config.store) for folder in folders]


def _pair(request: Request) -> tuple[Path, ...]:
    """Run two campaigns in turns."""
    folder, (a, b) = ab.begin_or_resume(request, warn)
    say(f"{a.plan.variant} in {a.folder} takes turns with {b.plan.variant} in {b.folder}")
    for place in (*watching.tracking_places(a), *watching.tracking_places(b)):
        say(place)
    todo, turns = [], []
    for side, campaign in zip(ab.SIDES, (a, b), strict=True):
        todo.append(pending(campaign.jobs, retry_failed=request.config.retry_failed))
        turns.append(watching.each_run(campaign, request, say, side=f"{side}: "))
    ab.take_turns(todo, turns, folder)
    return ab.folders(folder)


def _compared(finished: Sequence[finish.Finished]) -> dict[str, Any]:
    """Comparison of a pair."""
    a, b = (one.judgement for one in finished)
    try:
        compared = compare_campaigns(
            str(a.location.folder), a, str(b.location.folder), b, machine_history(discover.store(None))
        ).as_json()
        compared["differences"] = differences_as_json(a, b)
    except RequestError as error:  # too few runs were requested, or converged
        return {"comparisons": [], "not_compared": str(error)}
    return {"comparisons": [report.in_sentences(compared, 1)], "not_compared": None}


def _show_pair(content: Mapping[str, Any], console: Console) -> None:
    show(content, console)
    report.show(content, console)
    if content["not_compared"] is not None:
        print_line(console, content["not_compared"])
