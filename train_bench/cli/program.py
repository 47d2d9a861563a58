"""The program: a verb and its arguments. What each verb does stands in the file of its name in `commands/`."""

from __future__ import annotations

import importlib
import io
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from train_bench import __version__
from train_bench.cli import completion
from train_bench.cli.exit_codes import VALID, guarded
from train_bench.errors import UnknownName

HELP = """\
train-bench VERB ...: how long does this machine and this software take to train a model to a given quality?

  list                      benchmarks and launchers
  plan    [OVERRIDE ...]    what a run would do: the decided values and the exact commands; --json for programs
  forecast [OVERRIDE ...]   how long it would take, with intervals: from a probe, logs or published entries
  profile [OVERRIDE ...]    where the time of a step goes, and what to do; of PATH: where that of results went
  run     [OVERRIDE ...]    run a campaign of seeds, judge it and score it
  join    DIR OPTION ...    take part in a campaign that host 0 runs, on each further host
  settle  DIR               record what became of a submitted campaign, judge it and score it
  judge   PATH [--json]     what the rules say of a log, a campaign or a tree of results
  score   PATH [--json]     the score of a campaign, the results table of a tree
  compare A B ...           whether one campaign is faster than another, and how sure that is; --fail-if-slower 3%
  equivalent A B            whether two implementations do the same, rung by rung, and where they differ first
  rules   benchmark=NAME    what a round allows: values, runs, target, schedule
  review  ROUND_DIR         what of a round deserves a question: one row for each entry; --to F: as a page
  report  PATH ... --to F   one page about campaigns or trees of results
  index   DIR ...           keep what campaigns and rounds came to in a store; published DIR ...: a table of entries
  history [NAME=VALUE ...]  scores over dates and revisions, from the store; --to F: as a page; --sql for queries
  accept  [OVERRIDE ...]    check a fleet by training on each NODE, on pairs and on all; names the node that is ill
  web     [DIR]             the pages of results on 127.0.0.1, of campaigns also while they run
  rcp     [OVERRIDE ...]    run reference seeds and write a reference convergence point; --certainty: how sure one is
  prepare [OVERRIDE ...]    prepare the data of a benchmark
  new     benchmark NAME    a folder with a benchmark that trains, to be made another one
  check   [OVERRIDE ...]    whether a benchmark keeps what the contract promises
  verify  DIR [OPTION ...]  evaluate kept weights again: do they have the logged quality?
  export  DIR --to FILE     a campaign as one file that others can check and repeat; --sign KEY
  replay  FILE --to DIR     what is the same here, what differs, and does the result come about again? --only-check
  package DIR ... --to DIR  the tree of a submission, and what the official checkers think of it

accept, plan, forecast, profile, run, rcp and prepare are Hydra applications. Their options are overrides:
benchmark=resnet_mini, launcher=torchrun, launcher.nproc_per_node=2, runs=3, seed=1, output=DIR, resume=DIR, ...;
--help has a sentence for each, --cfg job prints the configuration, --multirun sweeps. Every verb has --help.

eval "$(train-bench -sc install=bash)" completes verbs and options in this shell (also zsh and fish).

Exit code 0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
3: runs cannot tell (compare --fail-if-slower, accept).
"""


def main() -> NoReturn:
    """Run one verb and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may hold bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    sys.exit(guarded(lambda: _carry_out(sys.argv[1:])))


def _carry_out(arguments: Sequence[str]) -> int:
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(HELP, end="")
    elif "--version" in arguments:
        print(f"train-bench {__version__}")
    elif arguments[0] in completion.FLAGS:
        return _complete(arguments)
    elif arguments[0] not in VERBS:
        raise UnknownName(what="verb", name=arguments[0], known=VERBS)
    else:
        return command(arguments[0])(arguments[1:])
    return VALID


def _complete(arguments: Sequence[str]) -> int:
    verb, rest = completion.verb_and_arguments(arguments, VERBS)
    if verb is None:
        print(" ".join(rest))
    elif verb in COMPOSING:
        return command(verb)(rest)
    return VALID


def command(verb: str) -> Callable[[Sequence[str]], int]:
    """What carries out a verb: its arguments to an exit code."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(f"train_bench.cli.commands.{verb}").main
    return main


VERBS = tuple(line.split()[0] for line in HELP.splitlines() if line.startswith("  "))
"""Each is a file of `train_bench/commands/`, and only the one that is asked for is loaded."""

COMPOSING = tuple(
    line.split()[0] for line in HELP.splitlines() if line.startswith("  ") and "[OVERRIDE" in line
)
"""Verbs that compose a configuration of overrides."""


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
