"""Run a campaign of seeds, judge it and score it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench.campaign import ab, finish, runner, start
from train_bench.cli import composing
from train_bench.cli.conclude import conclude, say, show, warn
from train_bench.cli.exit_codes import VALID
from train_bench.compare.comparison import compare
from train_bench.errors import RequestError
from train_bench.plan.request import Request
from train_bench.report import comparison as report
from train_bench.report import table


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""

    def act(request: Request) -> int:
        resumed = request.config.resume
        if request.against is not None or (resumed and ab.holds_pair(Path(resumed))):
            return _pair(request)
        folder = start.carry_out(request, say, warn)
        return VALID if folder is None else conclude(folder, request.config.store)

    return composing.with_request("run", arguments, act)


def _pair(request: Request) -> int:
    """Run two campaigns in turns, score both and compare them."""
    folder, plans = ab.begin_or_resume(request, warn)
    say(f"{plans[0].variant} in {folder / 'a'} takes turns with {plans[1].variant} in {folder / 'b'}")
    todo, turns = [], []
    for side, planned in zip(ab.SIDES, plans, strict=True):
        todo.append(runner.pending_jobs(planned, retry_failed=request.config.retry_failed))
        turns.append(start.each_run(planned, request, say, side=f"{side}: "))
    ab.take_turns(todo, turns, folder)
    finished = [finish.finish(path, request.config.store) for path in ab.folders(folder)]
    code = max(map(show, finished))
    scores = [one.judgement.score for one in finished]
    try:
        compared = compare(str(folder / "a"), scores[0], str(folder / "b"), scores[1]).as_json()
    except RequestError as error:  # too few runs were asked for, or converged
        print(error)
        return code
    report.show({"comparisons": [report.in_sentences(compared, 1)]}, table.console())
    return code
