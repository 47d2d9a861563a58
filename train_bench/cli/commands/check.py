"""Try whether a benchmark keeps what the contract promises; for benchmarks of one's own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from rich.console import Console

from train_bench.campaign import data, refusals
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.errors import TrainBenchError
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.plan.request import Request
from train_bench.report.console import make_console, print_line

KEPT, BROKEN, NOT_TRIED = "kept", "broken", "not tried"


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(composing.OverrideParser("check"), arguments)
    return composing.with_request("check", options, overrides, _check)


def _check(request: Request) -> Answer:
    campaign = Campaign.planned(request, to_be_run=False)
    refusals.refuse(campaign, [refusals.packages])
    planned = campaign.plan
    promises = [{"promise": problem, "state": BROKEN, "reason": None} for problem in _of_the_folder(planned)]
    for one in promises:
        _print(one)
    data.prepare(campaign)
    for one in _of_the_task(campaign):
        _print(one)
        promises.append(one)
    broken = sum(one["state"] == BROKEN for one in promises)
    content = {"benchmark": planned.variant, "broken": broken, "promises": promises}
    return Answer(code=INVALID if broken else VALID, content=content, show=_show)


def _print(one: Mapping[str, str | None]) -> None:
    mark = {KEPT: "ok     ", BROKEN: "BROKEN ", NOT_TRIED: "-      "}[str(one["state"])]
    reason = f": {one['reason']}" if one["reason"] else "" if one["state"] == BROKEN else "."
    print_line(make_console(), f"{mark} {one['promise']}{reason}", column=8)


def _show(content: Mapping[str, Any], console: Console) -> None:
    if content["broken"]:
        end = f"breaks {content['broken']} promises of the contract (train_bench/task.py)."
    else:
        end = "keeps the contract."
    print_line(console, f"{content['benchmark']} {end}")


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


def _of_the_task(campaign: Campaign) -> Iterator[dict[str, str | None]]:
    """Each promise of the contract with its state, as it is tried."""
    from train_bench.check import contract  # here, because it imports torch

    job = campaign.first
    case = contract.Case(job, campaign.benchmark, discover.task(job.reference))
    for check in contract.CHECKS:
        state, reason = _tried(contract, check, case)
        yield {"promise": contract.promise(check), "state": state, "reason": reason}


def _tried(contract: ModuleType, check: Callable[[Any], None], case: Any) -> tuple[str, str | None]:
    try:
        check(case)
    except contract.Broken as broken:
        return BROKEN, str(broken)
    except contract.NotTried as reason:
        return NOT_TRIED, f"not tried, because {reason}."
    except TrainBenchError as error:
        return BROKEN, f"it was refused: {error}"
    except Exception as error:  # whatever somebody's code may raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        return BROKEN, f"it raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno})."
    return KEPT, None
