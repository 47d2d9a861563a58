"""Show what a round allows: values, runs, target, schedule."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from train_bench.cli import benchmark_options, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.errors import RequestError
from train_bench.judge import rcp as points
from train_bench.judge.allowed_values import allowed_values
from train_bench.plan import discover
from train_bench.report import rules as report
from train_bench.rules.ruleset import BenchmarkRules

WORDS = ("benchmark", "ruleset", "division")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench rules", description=__doc__, words=WORDS)
    parser.add_argument("options", nargs="+", metavar="benchmark=NAME [ruleset=ROUND] [division=closed|open]")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    form.add_argument(
        "--official-file",
        action="store_true",
        help="the rule file that the official compliance checker reads",
    )
    options = parser.parse_args(arguments)
    values = benchmark_options.values(options.options, WORDS)
    name = values.get("benchmark", "")
    of_benchmark = benchmark_options.rules_of(values.get("benchmark"), values.get("ruleset"))
    of_variant = discover.describe_variant(name)["ruleset"] if name in discover.variants() else None
    if options.official_file:
        print(_official_file(of_benchmark), end="")
        return VALID
    reference = discover.hyperparameters(name) if of_benchmark.ruleset == of_variant else {}
    allowed = allowed_values(
        of_benchmark,
        values.get("division", "closed"),
        points.load(of_benchmark, discover.rcp_folders()),
        reference,
    )
    result_output.print_result(allowed, options.json, report.show)
    return VALID


def _official_file(rules: BenchmarkRules) -> str:
    if rules.generated is None:
        file = f"compliance_checker/{rules.ruleset.replace('-', '_')}/{rules.start}"
        raise RequestError(
            f"No file is made for {rules.name} under {rules.ruleset}: its rules are {file} of the installed "
            f"mlperf-logging {importlib.metadata.version('mlperf-logging')}, and the files that it names."
        )
    return rules.generated
