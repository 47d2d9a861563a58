"""What a round allows: values, runs, target, schedule."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Sequence

from train_bench.commands import reading
from train_bench.errors import RequestError, UnknownName
from train_bench.exit_codes import VALID
from train_bench.judge import rcp as points
from train_bench.judge.allowed_values import allowed_values
from train_bench.plan import discover
from train_bench.report import rules as report
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = argparse.ArgumentParser("train-bench rules", description=__doc__)
    parser.add_argument("options", nargs="+", metavar="benchmark=NAME [ruleset=ROUND] [division=closed|open]")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    form.add_argument(
        "--official-file",
        action="store_true",
        help="the rule file that the official compliance checker reads",
    )
    options = parser.parse_args(arguments)
    values = _named(options.options, ("benchmark", "ruleset", "division"))
    if "benchmark" not in values:
        raise RequestError("Name a benchmark, for example benchmark=resnet.")
    name = values["benchmark"]
    of_variant = discover.describe_variant(name)["ruleset"] if name in discover.variants() else None
    held = ruleset.load(ruleset.full_name(values.get("ruleset") or of_variant or _only_round(name)))
    of_benchmark = held.benchmark(name)
    if options.official_file:
        print(_official_file(of_benchmark), end="")
        return VALID
    reference = discover.hyperparameters(name) if held.name == of_variant else {}
    allowed = allowed_values(
        of_benchmark,
        values.get("division", "closed"),
        points.load(of_benchmark, discover.rcp_folders()),
        reference,
    )
    reading.tell(allowed, options.json, report.show)
    return VALID


def _official_file(rules: BenchmarkRules) -> str:
    if rules.generated is None:
        file = f"compliance_checker/{rules.ruleset.replace('-', '_')}/{rules.start}"
        raise RequestError(
            f"No file is made for {rules.name} under {rules.ruleset}: its rules are {file} of the installed "
            f"mlperf-logging {importlib.metadata.version('mlperf-logging')}, and the files that it names."
        )
    return rules.generated


def _named(arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    values = {}
    for word in arguments:
        name, sign, value = word.partition("=")
        if name not in names or not sign:
            raise RequestError(
                f"'{word}' is not an option; known: {', '.join(f'{name}=...' for name in names)}."
            )
        values[name] = value
    return values


def _only_round(benchmark: str) -> str:
    """The round of a benchmark that only one has."""
    rounds = [name for name in ruleset.names() if benchmark in ruleset.load(name).benchmarks]
    if not rounds:
        everyone = {name for held in ruleset.names() for name in ruleset.load(held).benchmarks}
        raise UnknownName(what="benchmark", name=benchmark, known=everyone)
    if len(rounds) > 1:
        raise RequestError(f"{benchmark} is in several rounds; add ruleset=, one of {', '.join(rounds)}.")
    return rounds[0]
