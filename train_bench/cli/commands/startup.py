"""Time starts with trained weights: from the start of a process to its first right answer, at five levels of what is
there already. Nothing is trained; no result of a campaign is touched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from train_bench.cli import campaign_paths, composing
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID, say
from train_bench.report import startup as report
from train_bench.startup import ladder, measurement
from train_bench.startup.measurement import SHARED_MEMORY, Settings


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    composing.refuse_file(options.to)
    settings = Settings(
        folder=options.folder,
        run=options.run,
        synthetic=options.synthetic,
        rounds=options.rounds,
        levels=measurement.levels_of(options.levels),
        disk=options.disk,
        memory=options.memory,
    )
    return composing.answer(lambda: _answer(settings), options)


def _answer(settings: Settings) -> Answer:
    content = measurement.measure(settings, say)
    code = VALID if measurement.all_right(content) else INVALID
    return Answer(code=code, content=content, show=report.show)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("train-bench startup", description=__doc__)
    campaign_paths.add_campaign(parser, optional=True, what=" with verified weights")
    parser.add_argument("--run", type=int, default=0, help="its run (default 0)")
    parser.add_argument(
        "--synthetic",
        metavar="SIZE,...",
        help="linear layers of these sizes instead, for example 10MB,100MB,1GB",
    )
    parser.add_argument("--rounds", type=int, default=5, help="starts of each level, in turn (default 5)")
    parser.add_argument(
        "--levels",
        default=",".join(ladder.LEVELS),
        metavar="LEVEL,...",
        help="; ".join(f"{name}: there is {there}" for name, there in ladder.RETAINED.items()),
    )
    parser.add_argument(
        "--disk",
        type=Path,
        metavar="DIR",
        help="folder on the disk that holds the weights; default: the user's cache folder",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        default=SHARED_MEMORY,
        metavar="DIR",
        help=f"folder in shared memory (default {SHARED_MEMORY})",
    )
    composing.answer_options(parser)
    return parser.parse_args(arguments)
