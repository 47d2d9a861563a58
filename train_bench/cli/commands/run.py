"""Run a campaign of seeds, judge it and score it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.campaign import ab, finish, runner, start
from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import answer_of, conclude, say, show, unfinished, warn
from train_bench.compare.comparison import compare
from train_bench.errors import RequestError
from train_bench.plan.request import Request
from train_bench.report import comparison as report
from train_bench.report.console import print_line


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(composing.OverrideParser("run"), arguments)
    return composing.with_request("run", options, overrides, _run)


def _run(request: Request) -> Answer:
    resumed = request.config.resume
    if request.against is not None or (resumed and ab.holds_pair(Path(resumed))):
        return _pair(request)
    folder = start.carry_out(request, say, warn)
    return unfinished() if folder is None else conclude(folder, request.config.store)


def _pair(request: Request) -> Answer:
    """Run two campaigns in turns, score both and compare them."""
    folder, plans = ab.begin_or_resume(request, warn)
    say(f"{plans[0].variant} in {folder / 'a'} takes turns with {plans[1].variant} in {folder / 'b'}")
    for place in (place for planned in plans for place in start.tracking_places(planned)):
        say(place)
    todo, turns = [], []
    for side, planned in zip(ab.SIDES, plans, strict=True):
        todo.append(runner.pending_jobs(planned, retry_failed=request.config.retry_failed))
        turns.append(start.each_run(planned, request, say, side=f"{side}: "))
    ab.take_turns(todo, turns, folder)
    finished = [finish.finish(path, request.config.store) for path in ab.folders(folder)]
    answer = answer_of(finished)
    a, b = (one.judgement.score for one in finished)
    try:
        compared = compare(str(folder / "a"), a, str(folder / "b"), b).as_json()
        comparison: dict[str, Any] = {"comparisons": [report.in_sentences(compared, 1)], "not_compared": None}
    except RequestError as error:  # too few runs were requested, or converged
        comparison = {"comparisons": [], "not_compared": str(error)}
    return replace(answer, content=answer.content | comparison, show=_show_pair)


def _show_pair(content: Mapping[str, Any], console: Console) -> None:
    show(content, console)
    report.show(content, console)
    if content["not_compared"] is not None:
        print_line(console, content["not_compared"])
