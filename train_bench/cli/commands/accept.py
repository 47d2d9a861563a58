"""Check a fleet by training: the same job with the same seed on every node, then on pairs and on all together; the node
that is slow, computes wrongly, has other versions or another time is named.

  train-bench accept benchmark=resnet_mini NODE ... output=DIR

NODE is a name, or NAME:ADDRESS where others reach it by another. DIR lies where all nodes see it, and train_bench is
installed on each as it is here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import say
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID
from train_bench.cli.hydra_app import SWEEPING
from train_bench.cli.overrides import WITH_VALUES
from train_bench.errors import RequestError
from train_bench.fleet import acceptance, names, verdict
from train_bench.fleet.observations import Node
from train_bench.fleet.settings import Settings
from train_bench.plan.request import Request
from train_bench.report import accept as report
from train_bench.report.console import print_line

EXIT_CODES = {verdict.GOOD: VALID, verdict.SICK: INVALID, verdict.CANNOT_TELL: CANNOT_TELL}


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, others = composing.parse(_parser(), arguments)
    overrides, named = _parted(others)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__slots__})
    settings.refuse()
    if settings.to is not None:
        composing.refuse_file(settings.to.with_suffix(".json"))
    if not SWEEPING.isdisjoint(overrides):
        raise RequestError("A fleet is checked by one benchmark at a time; leave --multirun out.")
    nodes = names.nodes_of(named)
    return composing.with_request(
        "accept", options, overrides, lambda request: _answer(request, nodes, settings)
    )


def _answer(request: Request, nodes: Sequence[Node], settings: Settings) -> Answer:
    accepted = acceptance.carry_out(request, nodes, settings, say)

    def shown(content: dict[str, Any], console: Console) -> None:
        report.show(content, console)
        page = accepted.page
        print_line(
            console, f"The page is in {page}, and the same for programs in {page.with_suffix('.json')}."
        )

    return Answer(code=EXIT_CODES[accepted.state], content=accepted.document, show=shown)


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the names of nodes."""
    overrides, named = [], []
    following = iter(words)
    for word in following:
        if word in WITH_VALUES:
            overrides += [word, *itertools.islice(following, 1)]
        elif "=" in word or word.startswith("-"):
            overrides.append(word)
        else:
            named.append(word)
    return overrides, named


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("accept", page=True)
    parser.add_argument(
        "--by",
        default="ssh -o BatchMode=yes {node}",
        metavar="COMMAND",
        help="what runs a program on a node: 'ssh {node}', or on all of them: 'srun --nodes=64 --ntasks-per-node=1 "
        "--nodelist={nodes}'; ssh without it",
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="accept.json of an earlier acceptance")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="the page, and the same as .json; default: DIR/accept.html",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="NUMBER", help="how many nodes train at the same time; all without it"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="NUMBER",
        help="trainings of each node by itself; 3 without it",
    )
    parser.add_argument(
        "--blocks", type=int, default=4, metavar="NUMBER", help="up to which evaluation they go; 4 without it"
    )
    parser.add_argument(
        "--noise",
        type=float,
        metavar="PERCENT",
        help="by how much times of machines that are alike vary at least (standard deviation); without it 1 on "
        "accelerators, else 4",
    )
    parser.add_argument(
        "--interface", metavar="NAME", help="network interface of the nodes for trainings together"
    )
    parser.add_argument(
        "--load",
        type=float,
        metavar="SECONDS",
        help="seconds of matrix products on all accelerators of a node at once, before the trainings; without it 20 on "
        "accelerators, else 0: no load",
    )
    parser.add_argument("--alone", action="store_true", help="no trainings together")
    return parser
