"""Is my commit slower? Revisions A and B of the git repository around this folder alternate on this machine until it is
decided whether B is slower than A by more than a limit, or reaches the target less often.

What follows is typed as for `run`: overrides, and a trainer of your own behind two dashes. Each revision is checked out
into a git worktree, which has what git tracks and is removed at the end; data_dir= and a program outside the repository
stay where they are. Runs have equal seeds (seed=1 if none is given).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from train_bench.campaign import ab, comparing, revisions
from train_bench.cli import overrides, result_output, shared_options
from train_bench.cli.arguments import Parser, with_command
from train_bench.cli.conclude import say
from train_bench.cli.exit_codes import state
from train_bench.compare import gate
from train_bench.compare.comparison import LEAST_RUNS
from train_bench.compare.question import Question
from train_bench.core import files
from train_bench.errors import LogError, RequestError
from train_bench.plan.run_config import TRAITS
from train_bench.report import gate as gate_report

GROUPS = ("benchmark", "launcher", "system", "submission", "point")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, others = _parser().parse_known_args(with_command(arguments))
    unknown = [word for word in (*options.options, *others) if "=" not in word]
    if unknown:
        raise RequestError(
            f"'{unknown[0]}' is not an option of a run; write NAME=VALUE, and the program of a trainer behind --."
        )
    limit = gate.limit_of(options.fail_if_slower)
    if options.pairs < LEAST_RUNS:
        raise RequestError(f"--pairs is {options.pairs}; a test needs at least {LEAST_RUNS} pairs.")
    question = Question(
        paths=(), limit=limit, margin=options.fail_if_worse, sequential=True, pairs=options.pairs
    )
    question.refuse()
    shared_options.refuse_no_file(options.to, "page.html")
    words = [*options.options, *others]
    overrides.resolve(words)  # the folder of a benchmark is found from now on, by the judge as well
    named = [word.partition("=")[2] for word in words if word.startswith("output=")]
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = files.resolved(files.own_path(named[-1] if named else f"results/{now}_revisions"))
    pair = revisions.read(
        (options.a, options.b),
        [word for word in words if not word.startswith("output=")],
        options.pairs,
        folder,
    )
    question = replace(question, paths=ab.folders(folder))
    if not options.json:
        say(f"A is {pair.revisions[0].name}; B is {pair.revisions[1].name}; their campaigns are in {folder}")
    revisions.alternate(
        pair, (lambda _text: None) if options.json else say, lambda: _decided(question, quiet=options.json)
    )
    compared = comparing.compare(question)
    content = compared.content | {"revisions": pair.as_json()}
    result_output.print_result(content, options.json, gate_report.show_document)
    if options.to is not None:
        compared.write_page(options.to)
    code: int = content["exit_code"]
    return state(code, gate_report.deciding(content)) if options.json else code


def _decided(question: Question, *, quiet: bool) -> bool:
    """True if the gate decides by the runs so far; tells how far it is."""
    try:
        content = comparing.compare(question).content
    except LogError as error:
        if not quiet:
            say(str(error))
        return False
    (only,) = content["gates"]
    known = [f"B takes {only['bounds']['value']:.3f} times as long as A"] if only["bounds"] else []
    known += [
        f"{failed} of {ended} runs of {side} missed the target"
        for side, (failed, ended) in zip("AB", only["failed"], strict=True)
        if failed
    ]
    decided = content["verdict"] != gate.CANNOT_TELL
    if known and not quiet:
        pairs = min(ended for _, ended in only["failed"])
        say(f"after {pairs} pairs: {', '.join(known)}; {'decided' if decided else 'undecided'}")
    return bool(decided)


def _parser() -> Parser:
    parser = Parser(
        "train-bench compare-revisions", description=__doc__, allow_abbrev=False, words={*TRAITS, *GROUPS}
    )
    parser.add_argument("a", metavar="A", help="the revision before the change: a branch, a tag or a commit")
    parser.add_argument("b", metavar="B", help="the revision with the change, for example HEAD")
    parser.add_argument(
        "options",
        nargs="*",
        default=[],
        metavar="OPTION=VALUE",
        help="options of train-bench run; output=DIR is where it goes",
    )
    parser.add_argument(
        "--fail-if-slower",
        default="3",
        metavar="PERCENT",
        help="the slow-down that is allowed in percent; 3 without it",
    )
    parser.add_argument(
        "--fail-if-worse",
        type=float,
        metavar="MARGIN",
        help="also if the quality of B is worse by more than this after the same training, in the unit of the metric",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=10,
        metavar="N",
        help="how many pairs of runs at most, 10 without it; it looks after each from the third on",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page, with the answer first")
    return parser
