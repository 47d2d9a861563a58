"""Check train_bench on a GPU of yours, in parts: peaks, runs, profiles, steps against peers, memory, repeatability.

Parts run in order of their value, each in a process of its own with a time limit; whatever one of them does, the next
one runs. The folder gets gpu_check.json after each part and gpu_check.md, a page that begins with what failed or is out
of its expected range. The same command again continues the file: what was not tried, then what failed. On a CPU the
parts run at tiny sizes, and what needs a GPU is not tried.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.cli import composing
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID, say
from train_bench.errors import RequestError
from train_bench.gpu_check import check
from train_bench.gpu_check.check import FILE, PAGE, Settings
from train_bench.gpu_check.parts import NAMES
from train_bench.report.console import print_line

DEFAULT_FOLDER = Path("gpu_check")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    if not 0 < options.minutes < float("inf"):
        raise RequestError(f"--minutes is {options.minutes:g}; give a finite number above 0.")
    settings = Settings(
        folder=options.output,
        minutes=options.minutes,
        only=NAMES if options.only is None else check.names(options.only),
        device=options.device,
    )
    return composing.answer(lambda: _answer(settings), options)


def _answer(settings: Settings) -> Answer:
    content = check.check(settings, say)

    def show(content: dict[str, Any], console: Console) -> None:
        for sentence in content["verdicts"]:
            print_line(console, sentence)
        print_line(console, f"{settings.folder / PAGE}, {settings.folder / FILE}")

    return Answer(code=INVALID if check.has_failed(content) else VALID, content=content, show=show)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("train-bench gpu-check", description=__doc__)
    parser.add_argument("--minutes", type=float, default=13.0, help="of all parts together (default 13)")
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help=f"of the file and the page; continued if it has a file (default {DEFAULT_FOLDER})",
    )
    parser.add_argument("--only", metavar="PART,...", help=f"these parts alone: {', '.join(NAMES)}")
    parser.add_argument(
        "--device",
        default="auto",
        metavar="TYPE",
        help="auto (the accelerator that torch finds, else the CPU), cpu, or a type of accelerator such as cuda",
    )
    composing.answer_options(parser)
    return parser.parse_args(arguments)
