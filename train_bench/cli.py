"""The program: a verb and its words. What each verb does stands in `verbs_that_run.py` and
`verbs_that_read.py`."""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from train_bench import __version__, verbs_that_read, verbs_that_run
from train_bench.errors import UnknownName
from train_bench.guard import VALID, guarded

HELP = """\
train-bench VERB ...: how long does this machine and this software take to train a model to a given quality?

  list                      benchmarks and launchers
  plan    [OVERRIDE ...]    what a run would do: the decided values and the exact commands; --json for programs
  run     [OVERRIDE ...]    run a campaign of seeds, judge it and score it
  join    DIR OPTION ...    take part in a campaign that host 0 runs, on each further host
  settle  DIR               record what became of a submitted campaign, judge it and score it
  judge   PATH [--json]     what the rules say of a log, a campaign or a tree of results
  score   PATH [--json]     the score of a campaign, the results table of a tree
  compare A B ...           whether one campaign is faster than another, and how sure that is
  rules   benchmark=NAME    what a round allows: values, runs, target, schedule
  report  PATH ... --to F   one page about campaigns or trees of results
  rcp     [OVERRIDE ...]    run reference seeds and write a reference convergence point
  prepare [OVERRIDE ...]    prepare the data of a benchmark
  board   FILE [MOVES]      a game of Go that self-play has left behind, as a board
  package DIR ... --to DIR  the tree of a submission, and what the official checkers think of it

plan, run, rcp and prepare are Hydra applications. Their options are overrides: benchmark=resnet_mini,
launcher=torchrun, launcher.nproc_per_node=2, runs=3, seed=1, output=DIR, resume=DIR, ...; --help lists
them all, --cfg job prints the configuration, --multirun sweeps.

Exit code 0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
"""


def main() -> NoReturn:
    """Run one verb and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may hold bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    sys.exit(guarded(lambda: _carry_out(sys.argv[1:])))


def _carry_out(words: Sequence[str]) -> int:
    if words[:1] in ([], ["-h"], ["--help"]):
        print(HELP, end="")
    elif words == ["--version"]:
        print(f"train-bench {__version__}")
    elif words[0] not in VERBS:
        raise UnknownName(what="verb", name=words[0], known=VERBS)
    else:
        return VERBS[words[0]](words[1:])
    return VALID


def list_benchmarks(words: Sequence[str]) -> int:
    """Benchmarks and launchers."""
    argparse.ArgumentParser("train-bench list", description=list_benchmarks.__doc__).parse_args(words)
    from train_bench.plan import discover
    from train_bench.report import listing, table

    chosen = discover.defaults()
    described = {variant: discover.describe_variant(variant) for variant in discover.variants()}
    told = {
        "benchmarks": [
            one
            | {
                "name": name,
                "default": name == chosen["benchmark"],
                "has_data": discover.has_data(discover.cache() / one["benchmark"]),
            }
            for name, one in described.items()
        ],
        "launchers": [
            {"name": name, "default": name == chosen["launcher"], "about": discover.describe_launcher(name)}
            for name in discover.launchers()
        ],
    }
    listing.show(told, table.console())
    return VALID


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": list_benchmarks,
    "plan": verbs_that_run.plan,
    "run": verbs_that_run.run,
    "join": verbs_that_run.join,
    "settle": verbs_that_run.settle,
    "judge": verbs_that_read.judge,
    "score": verbs_that_read.score,
    "compare": verbs_that_read.compare,
    "rules": verbs_that_read.rules,
    "report": verbs_that_read.report,
    "rcp": verbs_that_run.rcp,
    "prepare": verbs_that_run.prepare,
    "board": verbs_that_read.board,
    "package": verbs_that_read.package,
}


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
