"""Test whether the runs of records show what they claim: that the mean quality is beyond a target.

Each PATH is one record: a folder of logs (MLLOG, or text with a name and a number), one log, or a table of runs in CSV
or JSON. Several are records of one board in their order, and the time of each is compared with the one before. The exit
code is 1 if a claim is not shown. Nothing of a record is run.

`referee CONTEST.yaml CHALLENGER` holds a revision, a patch or a folder to the frontier of a contest instead: both run
in turns, and a record is added to its ledger. Without a challenger it verifies the ledger and decides it again from the
logs; `referee refute CONTEST.yaml NUMBER` runs a record again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from train_bench.cli import contest, result_output, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.core import files
from train_bench.errors import LogError, RequestError
from train_bench.referee.claim import LEVEL, POWER, Claim, Target, judge_record
from train_bench.referee.readers import Names, read_record
from train_bench.report import referee
from train_bench.report.comparison import distinct_names
from train_bench.report.page import write


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    if contest.is_meant(arguments):
        return contest.main(arguments)
    options = _parser().parse_args(arguments)
    shared_options.refuse_no_file(options.to, "records.html")
    target = _target(options)
    names = Names(options.quality, options.time, options.at)
    claims: list[Claim] = []
    unread = []
    former = None
    for name, path in zip(distinct_names([*map(str, options.paths)]), options.paths, strict=True):
        try:
            record = read_record(path, names)
        except LogError as error:
            if len(options.paths) == 1:
                raise
            unread.append(str(error))
            continue
        claims.append(judge_record(record, target, name, former))
        former = name, record
    content = {
        "target": asdict(target),
        "records": [claim.as_json() for claim in claims],
        "unread": unread,
    }
    if options.to is not None:
        files.write(options.to, write.referee_page(content))
    result_output.print_result(content, options.json, referee.show)
    code = VALID if not unread and all(claim.shown for claim in claims) else INVALID
    return (
        state(code, "a claim is not shown or a record not read; the output says which.")
        if options.json
        else code
    )


def _target(options: argparse.Namespace) -> Target:
    above = options.above is not None
    value = options.above if above else options.below
    for name, number, allowed in (
        ("level", options.level, 0 < options.level < 1),
        ("power", options.power, options.level < options.power < 1),
        ("deviation", options.deviation, options.deviation is None or 0 < options.deviation < math.inf),
        ("above" if above else "below", value, math.isfinite(value)),
    ):
        if not allowed:
            raise RequestError(f"--{name} is {number:g}; {ALLOWED[name]}.")
    return Target(
        value=value, above=above, level=options.level, power=options.power, deviation=options.deviation
    )


ALLOWED = {
    "level": "give a probability between 0 and 1, for example 0.01",
    "power": "give a probability between the level and 1, for example 0.8",
    "deviation": "give a positive number, for example 0.0013",
    "above": "give a number, for example 0.2565",
    "below": "give a number, for example 3.28",
}


def _parser() -> argparse.ArgumentParser:
    parser = Parser("train-bench referee", description=__doc__)
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="records: folders of logs, logs, or tables of runs",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--below", type=float, metavar="TARGET", help="the quality has to be below it (a loss)"
    )
    target.add_argument(
        "--above", type=float, metavar="TARGET", help="the quality has to be above it (an accuracy)"
    )
    parser.add_argument(
        "--quality", metavar="NAME", help="name of the quality in the logs, for example val_loss"
    )
    parser.add_argument(
        "--time",
        metavar="NAME",
        help="name of the time in the logs, for example train_time, or of a cost: step",
    )
    parser.add_argument(
        "--at",
        type=int,
        metavar="STEP",
        help="the evaluation at this step counts (text logs); the last one without it",
    )
    parser.add_argument(
        "--level", type=float, default=LEVEL, metavar="P", help=f"significance level (default: {LEVEL})"
    )
    parser.add_argument(
        "--power", type=float, default=POWER, metavar="P", help=f"power of the runs needed (default: {POWER})"
    )
    parser.add_argument(
        "--deviation",
        type=float,
        metavar="SD",
        help="standard deviation of runs, where the board fixes it: a normal test",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page")
    return parser
