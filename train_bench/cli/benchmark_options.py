"""Options NAME=VALUE of commands about a benchmark, and the round of that benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.errors import RequestError, UnknownName
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


def values(arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Options by name."""
    given = {}
    for word in arguments:
        name, sign, value = word.partition("=")
        if name not in names or not sign:
            hint = f" Did you mean benchmark={word}?" if not sign and word in _everyone() else ""
            known = ", ".join(f"{name}=..." for name in names)
            raise RequestError(f"'{word}' is not an option.{hint} Known: {known}.")
        given[name] = value
    return given


def rules_of(benchmark: str | None, round_name: str | None) -> BenchmarkRules:
    """Rules of a benchmark, by the name of a configuration or of its logs; without a round, those of its
    configuration, or of the only round that has it."""
    if benchmark is None:
        raise RequestError("Name a benchmark, for example benchmark=resnet.")
    described = discover.describe_variant(benchmark) if benchmark in discover.variants() else {}
    chosen = round_name or described.get("ruleset")
    held = ruleset.load(ruleset.full_name(chosen or only_round(benchmark)))
    logged = described.get("benchmark", benchmark)
    return held.benchmark(benchmark if benchmark in held.benchmarks else logged)


def only_round(benchmark: str) -> str:
    """Round of a benchmark that only one has."""
    rounds = [name for name in ruleset.names() if benchmark in ruleset.load(name).benchmarks]
    if not rounds:
        raise UnknownName(what="benchmark", name=benchmark, known=_everyone())
    if len(rounds) > 1:
        raise RequestError(f"{benchmark} is in several rounds; add ruleset=, one of {', '.join(rounds)}.")
    return rounds[0]


def _everyone() -> set[str]:
    """Benchmarks by the names of configurations, and of the logs of every round."""
    logged = {name for held in ruleset.names() for name in ruleset.load(held).benchmarks}
    return logged | set(discover.variants())
