"""Try whether a benchmark keeps what the contract promises; for benchmarks of one's own."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import cattrs

from train_bench.campaign import preflight, runner, start
from train_bench.cli import composing
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.errors import TrainBenchError
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.plan.request import Request


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    return composing.with_request("check", arguments, _check)


def _check(request: Request) -> int:
    request.refuse_against()
    request.refuse_command()
    planned = start.plan_of(request, to_be_run=False)
    preflight.refuse_missing_packages(planned.jobs[0])
    broken = _of_the_folder(planned)
    for problem in broken:
        print(f"BROKEN  {problem}", flush=True)
    runner.prepare_data(planned)
    count = len(broken) + _of_the_task(planned)
    if count:
        print(f"{planned.variant} breaks {count} promises of the contract (train_bench/task.py).")
        return INVALID
    print(f"{planned.variant} keeps the contract.")
    return VALID


def _of_the_folder(planned: Plan) -> list[str]:
    folder = discover.folder(planned.reference)
    problems = [f"It is another task than {planned.benchmark} by {change}." for change in planned.changes]
    if not (folder / "README.md").is_file():
        problems.append(
            f"{folder} has no README.md; it says what is learnt from what, and how the target was chosen."
        )
    if not discover.about(planned.variant):
        problems.append(
            f"The configuration of {planned.variant} does not begin with a sentence of comment; `list` shows it."
        )
    return problems


def _of_the_task(planned: Plan) -> int:
    from train_bench.check import contract  # here, because it imports torch

    job = planned.jobs[0]
    kind = discover.reference_config(job.reference)
    case = contract.Case(job, cattrs.structure(job.config, kind), discover.task(job.reference))
    count = 0
    for check in contract.CHECKS:
        promise = contract.promise(check)
        try:
            check(case)
        except contract.Broken as broken:
            count += 1
            print(f"BROKEN  {promise}: {broken}", flush=True)
        except contract.NotTried as reason:
            print(f"-       {promise}: not tried, because {reason}.", flush=True)
        except TrainBenchError as error:
            count += 1
            print(f"BROKEN  {promise}: it was refused: {error}", flush=True)
        except Exception as error:  # whatever somebody's code may raise
            count += 1
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
            print(f"BROKEN  {promise}: it raised {what}.", flush=True)
        else:
            print(f"ok      {promise}.", flush=True)
    return count
