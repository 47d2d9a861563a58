"""Test whether two implementations are equivalent: A and B are recorded in own processes, from the same weights
on the same batches, and compared check by check, from start weights to an evaluation. How far apart they may be
is measured by further recordings of A, with other rounding and in double precision; where a difference is near, both
are recorded four times more.

A is a benchmark as run takes it, in quotes: 'benchmark=resnet_mini launcher=torchrun launcher.nproc_per_node=2'.
B is what is different there: 'launcher=horovod', 'precision=bf16', 'benchmark.compile=true', ...; besides

  revision=REV       B runs this revision of the checkout that train-bench is run from
  model=MODULE:FUNCTION names=FILE
                     B is a third-party model: FUNCTION(configuration of
                     the benchmark) builds it, the file says which tensor is
                     which, a line OURS THEIRS each (docs/equivalence.md).
                     A is one rank

Either may be a folder that --record or --keep has left. Two finished campaigns are compared by their convergence:
whether they take equally many samples to the target, +-5 %; slower is as different as faster.

Exit code 0: equal, as far as was compared. 1: different. 2: the request was wrong. 3: undecided.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from train_bench.cli import composing, hydra_app, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID, guarded, state
from train_bench.core import files
from train_bench.equivalence import compare, recorder, sides
from train_bench.equivalence.convergence import convergence
from train_bench.equivalence.sides import Settings, Side
from train_bench.errors import RequestError
from train_bench.plan.request import Request
from train_bench.report import equivalence as report

CODES = {compare.EQUAL: VALID, compare.DIFFERENT: INVALID, compare.CANNOT_TELL: CANNOT_TELL}


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _parser().parse_args(arguments)
    composing.refuse_file(options.to)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__slots__})
    if (options.record is None) == (options.b is None):
        raise RequestError("Give two sides to compare, A and B, or --record DIR and one side to record.")
    campaigns = sides.campaigns_of(options.a, options.b)
    if campaigns:
        return _answer(options, [convergence(*campaigns)])
    settings.refuse()
    a, b = sides.sides_of(options.a, options.b)
    with settings.folder() as folder:
        pair = sides.recorded_before(a, b) or _recorded(a, b, folder.resolve(), settings)
        if pair is None:
            print(f"A is recorded in {folder}; train-bench equivalent {folder} B compares it.")
            return VALID
        with files.valid_content("A recording"):
            rungs = compare.run_checks(pair, settings.rungs)
    return _answer(options, rungs, pair)


def _recorded(a: Side, b: Side | None, folder: Path, settings: Settings) -> compare.Pair | None:
    """Both sides and the twins of A, recorded now; None where only A was to be recorded."""
    pairs: list[compare.Pair | None] = []

    def act(request: Request) -> int:
        def work() -> int:
            pairs.append(recorder.record_sides(request, b, folder, settings))
            return VALID

        return guarded(work)

    against = ["against=" + shlex.join(b.overrides)] if b is not None and b.overrides else []
    code = hydra_app.with_request("equivalent", [*a.overrides, *against], act)
    if code != VALID:
        raise SystemExit(code)
    return pairs[0]


def _answer(
    options: argparse.Namespace, rungs: Sequence[compare.Check], pair: compare.Pair | None = None
) -> int:
    code = CODES[compare.verdict(rungs)]
    content = compare.document(options.a, options.b, rungs, pair, exit_code=code)
    if options.to is not None:
        files.write_json(options.to, content)
    result_output.print_result(content, options.json, report.show)
    return state(code, f"the verdict is {content['verdict']}.") if options.json else code


def _parser() -> Parser:
    parser = Parser("train-bench equivalent", description=__doc__)
    parser.add_argument("a", metavar="A", help="overrides in quotes, or a folder with recordings")
    parser.add_argument("b", metavar="B", nargs="?", help="what is different, in quotes, or such a folder")
    parser.add_argument("--rungs", nargs="+", default=[], metavar="CHECK", help=", ".join(compare.CHECKS))
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="steps of training, 50 by default")
    parser.add_argument(
        "--seeds",
        type=int,
        default=20,
        metavar="N",
        help="seeds whose start weights are compared, 20 by default",
    )
    parser.add_argument(
        "--synthetic",
        action="store_true",
        help="train on synthetic batches, where the data are missing",
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="record A for later, and compare nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all recordings there")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the answer there as JSON")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser
