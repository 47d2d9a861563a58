"""Tables of many results, made to be read again: `published` is that of the entries of published rounds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from train_bench.errors import RequestError
from train_bench.exit_codes import VALID
from train_bench.judge import derive, published

SHOWN = 10
"""Why more entries than these are left out is told with --json only."""


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = argparse.ArgumentParser("train-bench index", description=__doc__)
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    about = "What each entry of published rounds trained on, how many samples it needed and how long it took, as CSV."
    of_rounds = kinds.add_parser("published", help="entries of published rounds, as CSV", description=about)
    of_rounds.add_argument(
        "rounds",
        nargs="+",
        type=Path,
        metavar="ROUND_DIR",
        help="checkout of a round (SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt, SUBMITTER/systems/SYSTEM.json)",
    )
    of_rounds.add_argument("--to", type=Path, required=True, metavar="FILE", help="the table, made anew")
    of_rounds.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    of_rounds.add_argument("--json", action="store_true", help="one JSON object on standard output")
    of_rounds.set_defaults(carry_out=_published)
    options = parser.parse_args(arguments)
    code: int = options.carry_out(options)
    return code


def _published(options: argparse.Namespace) -> int:
    if options.to.name == "" or options.to.is_dir():
        raise RequestError(f"--to is '{options.to}'; give the name of a file, for example published.csv.")
    derived = derive.derive(options.rounds, options.ruleset)
    published.write(options.to, derived.entries)
    rounds = sorted({entry.round for entry in derived.entries})
    if options.json:
        told = {
            "table": str(options.to),
            "entries": len(derived.entries),
            "logs": derived.logs,
            "rounds": rounds,
            "left_out": derived.left_out,
        }
        print(json.dumps(told, indent=2))
        return VALID
    for why in derived.left_out[:SHOWN]:
        print(f"left out: {why}")
    if len(derived.left_out) > SHOWN:
        print(f"left out: {len(derived.left_out) - SHOWN} others (--json has them)")
    print(
        f"{options.to} holds {len(derived.entries)} entries of {', '.join(rounds)}, from {derived.logs} logs."
    )
    return VALID
