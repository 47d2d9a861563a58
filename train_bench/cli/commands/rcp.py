"""Run reference seeds and write a reference convergence point, or with --certainty benchmark=NAME say how sure the
points are that it has, and run nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.campaign import finish, reference_point, start
from train_bench.cli import benchmark_options, composing, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import say, warn
from train_bench.cli.exit_codes import VALID
from train_bench.core import files, instruments
from train_bench.core.job import jobs_of
from train_bench.errors import RequestError
from train_bench.judge import rcp
from train_bench.judge.published import published_entries
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.report import certainty as report
from train_bench.report.console import print_line
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

CERTAINTY = "--certainty"
ASKING = frozenset({CERTAINTY, "certainty=true", "--certainty=true"})
WORDS = ("benchmark", "ruleset", "batch_size", "less")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    if not ASKING.isdisjoint(arguments):
        return _certainty(arguments)
    options, overrides = composing.parse(composing.OverrideParser("rcp"), arguments)
    return composing.with_request("rcp", options, overrides, _reference_runs)


def _reference_runs(request: Request) -> Answer:
    folder = start.carry_out(request, say, warn, reference_runs=True)
    if folder is None:
        return Answer(content={"point": None, "certainty": None}, show=_show)
    config = request.config
    return _point(folder, replace=config.replace_point, append=config.append_point)


def _point(folder: Path, *, replace: bool, append: bool) -> Answer:
    """The folder may have been begun with leave to replace or to append, in its plan, or get it now."""
    plan = files.read_json(folder / "plan.json")
    replace = replace or plan["request"].get("replace_point", False)
    append = append or plan["request"].get("append_point", False)
    of_program = jobs_of(plan)[0].get("command") is not None
    folder_of = discover.rcp_folder_of_program if of_program else discover.rcp_folder_of
    to = folder_of(plan["reference"])
    judged = finish.judge_campaign(folder)
    rules = ruleset.load(plan["ruleset"]).benchmark(plan["benchmark"])
    before = rcp.digest(rcp.load(rules, discover.rcp_folders()))
    path = reference_point.add(judged, folder, to, discover.rcp_folders(), replace=replace, append=append)
    points = rcp.load(rules, discover.rcp_folders())
    batch_size = jobs_of(plan)[0]["config"]["hyperparameters"]["global_batch_size"]
    content = {
        "benchmark": rules.name,
        "point": str(path),
        "former_digest": before,
        "points_digest": rcp.digest(points),
        "certainty": _certainty_of(points, rules, batch_size),
    }
    return Answer(content=content, show=_show)


def _certainty_of(
    points: Sequence[rcp.Point], rules: BenchmarkRules, batch_size: int
) -> dict[str, Any] | None:
    """Certainty of the point that was measured; None, with a warning, where forecasts are not installed."""
    if (lack := instruments.missing("forecast")) is not None:
        warn(f"the certainty of the point is unknown: {lack}")
        return None
    from train_bench.forecast import certainty

    return certainty.certainty_of_point(points, rules, batch_size).as_json()


def _show(content: Mapping[str, Any], console: Console) -> None:
    if content["point"] is None:
        return
    print_line(console, f"The reference convergence point is in {content['point']}.")
    if content["certainty"] is not None:
        print_line(console, report.sentence(content["certainty"], content["benchmark"]))
    before, after = content["former_digest"], content["points_digest"]
    if before is not None and after != before:
        print_line(
            console,
            f"The points of {content['benchmark']} had the digest {before[:12]} and have {str(after)[:12]} now: "
            f"results are compared with other points than before, and campaigns that were planned with the old ones "
            f"say so.",
        )


def _certainty(arguments: Sequence[str]) -> int:
    from train_bench.forecast import certainty

    parser = Parser(
        "train-bench rcp --certainty",
        description="Statistical power of the reference convergence points of a benchmark.",
        words=WORDS,
    )
    parser.add_argument(CERTAINTY, action="store_true", help="ask, and run nothing")
    parser.add_argument(
        "options",
        nargs="*",
        metavar="benchmark=NAME [ruleset=ROUND] [batch_size=B] [less=0.1]",
        help="less is the part of training that a submission leaves out which is to fail with a probability of 80 %%",
    )
    parser.add_argument(
        "--published",
        type=Path,
        metavar="TABLE",
        help="table of published entries that the points are held against; by default that of six rounds which comes "
        "with train_bench",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    values = benchmark_options.values(options.options, WORDS)
    rules = benchmark_options.rules_of(values.get("benchmark"), values.get("ruleset"))
    described = certainty.describe(
        rcp.load(rules, discover.rcp_folders()),
        rules,
        published_entries.read(options.published) if options.published else published_entries.shipped(),
        less=_number(values, "less", certainty.LESS),
        batch_size=int(_number(values, "batch_size", 0)) or None,
    )
    result_output.print_result(described, options.json, report.show)
    return VALID


def _number(values: dict[str, str], name: str, default: float) -> float:
    try:
        return float(values[name]) if name in values else default
    except ValueError:
        raise RequestError(f"{name}={values[name]} is not a number; give one such as {name}=0.1.") from None
