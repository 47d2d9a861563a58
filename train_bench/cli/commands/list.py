"""Benchmarks and launchers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.plan import discover, earlier
from train_bench.report import listing
from train_bench.report.console import make_console


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    Parser("train-bench list", description=__doc__).parse_args(arguments)
    chosen = discover.defaults()
    seen = earlier.times_of_runs(Path("results"))
    described: dict[str, dict[str, Any]] = {
        variant: discover.describe_variant(variant)
        for variant in discover.variants()
        if variant not in discover.points()
    }
    listed: dict[str, Any] = {
        "benchmarks": [
            one
            | {
                "name": name,
                "default": name == chosen["benchmark"],
                "time_of_a_run": seen.get(name),
                "points": list(sizes) if len(sizes := discover.points_of(name)) > 1 else [],
                "has_data": discover.has_data(discover.cache() / one["benchmark"]),
            }
            for name, one in described.items()
        ],
        "launchers": [
            {"name": name, "default": name == chosen["launcher"], "about": discover.describe_launcher(name)}
            for name in discover.launchers()
        ],
    }
    listing.show(listed, make_console())
    return VALID
