"""Test whether two implementations are equivalent: A and B are recorded in own processes, from the same weights
on the same batches, and compared check by check, from start weights to an evaluation. How far apart they may be
is measured by further recordings of A, with other rounding and in double precision; where a difference is near, both
are recorded four times more.

A is a benchmark as run takes it, in quotes: 'benchmark=resnet_mini launcher=torchrun launcher.nproc_per_node=2'.
B is what is different there: 'launcher=horovod', 'precision=bf16', 'benchmark.compile=true', ...; besides

  revision=REV       B runs this revision of the checkout that train-bench is run from
  model=MODULE:FUNCTION names=FILE
                     B is a model of somebody else's: FUNCTION(configuration of
                     the benchmark) builds it, the file says which tensor is
                     which, a line OURS THEIRS each (docs/equivalence.md).
                     A is one rank

Either may be a folder that --record or --keep has left. Two finished campaigns are compared by their convergence:
whether they take equally many samples to the target, give or take 5 %; slower is as different as faster.

Exit code 0: equal, as far as was compared. 1: different. 2: the request was wrong. 3: undecided.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from train_bench.campaign import data, rank_job
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing, hydra_app, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID, guarded, state
from train_bench.compare.equal_convergence import MARGIN, equal_convergence
from train_bench.core import files
from train_bench.core.digits import distinct
from train_bench.core.job import Precision
from train_bench.core.variables import variable
from train_bench.equivalence import compare, recording
from train_bench.errors import LaunchError, RequestError, UnknownName
from train_bench.judge.tree import judge_folder
from train_bench.launcher import Launch
from train_bench.plan import definition, discover, process
from train_bench.plan.discover import ROOT
from train_bench.plan.request import Request
from train_bench.report import equivalence as report

CODES = {compare.EQUAL: VALID, compare.DIFFERENT: INVALID, compare.CANNOT_TELL: CANNOT_TELL}
UNITS = {
    Precision.fp32: 2.0**-23,
    Precision.tf32: 2.0**-10,
    Precision.fp16: 2.0**-10,
    Precision.bf16: 2.0**-7,
}
"""From one number of a precision to the next, as a share of it."""

OF_B = ("revision", "model", "names")
A, B = "a", "b"
TWINS = ("rounding", "threads")
DOUBLE = "double"
COARSE = "coarse rounding"

DRAWS = (1, 2, 3, 4)
"""Roundings with which both sides are recorded again where a difference is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: overrides, or a folder with recordings; and the revision that it runs."""

    overrides: tuple[str, ...] = ()
    folder: Path | None = None
    revision: str | None = None
    model: str | None = None
    names: str | None = None


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _parser().parse_args(arguments)
    composing.refuse_file(options.to)
    for name in options.rungs:
        if name not in compare.RUNGS:
            raise UnknownName(what="rung", name=name, known=compare.RUNGS)
    if (options.record is None) == (options.b is None):
        raise RequestError("Give two sides to compare, A and B, or --record DIR and one side to record.")
    folders = [folder for side in (options.a, options.b) if side and (folder := _folder(side))]
    if len(folders) == 2 and all(any(folder.glob("result_*.txt")) for folder in folders):
        return _answer(options, [_convergence(*folders)], steps=0, double=False)
    if options.steps < 1 or options.seeds < 2:
        raise RequestError(
            f"--steps is {options.steps} and --seeds is {options.seeds}; allowed are 1 and 2 or more."
        )
    a, b = _side(options.a), None if options.b is None else _side(options.b)
    for name in OF_B:
        if getattr(a, name) is not None:
            raise RequestError(f"{name}= is for B; A runs the checkout as it is, and its reference.")
    if b is not None and (b.model is None) != (b.names is None):
        raise RequestError("model=MODULE:FUNCTION and names=FILE belong together; give both or none.")
    kept = options.record or options.keep
    if kept is not None and kept.is_dir() and any(kept.iterdir()):
        raise RequestError(f"The folder {kept} is not empty; choose another for the recordings.")
    with contextlib.ExitStack() as stack:
        folder = kept or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="train_bench_equivalent_"))
        )
        found = _recorded(a, b, folder.resolve(), options)
        if found is None:
            print(f"A is recorded in {folder}; train-bench equivalent {folder} B compares it.")
            return VALID
        with files.valid_content("A recording"):
            rungs = compare.climb(found, options.rungs)
    steps = min(len(found.a.losses), len(found.b.losses))
    return _answer(options, rungs, steps=steps, double=found.double is not None)


def _answer(options: argparse.Namespace, rungs: Sequence[compare.Check], *, steps: int, double: bool) -> int:
    verdict = compare.verdict(rungs)
    content = {
        "a": options.a,
        "b": options.b,
        "verdict": verdict,
        "exit_code": CODES[verdict],
        "steps": steps,
        "double": double,
        "rungs": [rung.as_json() for rung in rungs],
    }
    if options.to is not None:
        files.write_json(options.to, content)
    result_output.print_result(content, options.json, report.show)
    return state(CODES[verdict], f"the verdict is {verdict}.") if options.json else CODES[verdict]


def _convergence(a: Path, b: Path) -> compare.Check:
    """The last rung, of two campaigns."""
    judged = [
        judge_folder(path, ruleset_name=None, rcp_folders=discover.rcp_folders(), changes=definition.changes)
        for path in (a, b)
    ]
    found = equal_convergence(str(a), judged[0].score, str(b), judged[1].score)
    more = f"; {found.more_runs} more seeds each would tell" if found.more_runs else ""
    if found.verdict == compare.CANNOT_TELL and found.low == found.high:
        more = "; all stopped at the same evaluation, so evaluate more often"
    ratio, low, high = (
        distinct(one, 1.0, 1 + MARGIN, 1 / (1 + MARGIN), decimals=3)[0]
        for one in (found.ratio, found.low, found.high)
    )
    of = [f"{count} of {len(one.score.runs)}" for count, one in zip(found.runs, judged, strict=True)]
    return compare.Check(
        name="convergence",
        verdict=found.verdict,
        compared=sum(found.runs),
        where=f"samples to the target {ratio} times A's, 90 % interval {low} to {high}",
        error=abs(found.ratio - 1),
        tolerance=MARGIN,
        note=f"{of[0]} and {of[1]} runs{more}",
    )


def _parser() -> Parser:
    parser = Parser("train-bench equivalent", description=__doc__)
    parser.add_argument("a", metavar="A", help="overrides in quotes, or a folder with recordings")
    parser.add_argument("b", metavar="B", nargs="?", help="what is different, in quotes, or such a folder")
    parser.add_argument("--rungs", nargs="+", default=[], metavar="RUNG", help=", ".join(compare.RUNGS))
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
        help="train on look-alikes of batches, where the data are not there",
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="record A for later, and compare nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all recordings there")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the answer there as JSON")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _folder(text: str) -> Path | None:
    """The folder of that name, if there is one; overrides may be longer than a name can be."""
    path = Path(text).expanduser()
    return path if text and os.path.isdir(path) else None  # noqa: PTH112 `Path.is_dir` raises for long names


def _side(text: str) -> Side:
    folder = _folder(text)
    if folder is not None:
        inner = folder / A if (folder / A).is_dir() else folder
        if not recording.is_recording(inner):
            raise RequestError(
                f"{folder} holds no recording; make one with train-bench equivalent A --record DIR."
            )
        return Side(folder=folder.resolve())
    words = shlex.split(text)
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise RequestError(f"{wrong[0]} is no override NAME=VALUE and no folder with recordings.")
    of_b = {name: value for name, _, value in (word.partition("=") for word in words) if name in OF_B}
    return Side(
        overrides=tuple(word for word in words if word.partition("=")[0] not in OF_B),
        revision=of_b.get("revision"),
        model=of_b.get("model"),
        names=of_b.get("names"),
    )


def _recorded(a: Side, b: Side | None, folder: Path, options: argparse.Namespace) -> compare.Pair | None:
    """Both sides and the twins of A; None where only A was to be recorded."""
    if a.folder is not None and b is not None and b.folder is not None:
        if a.folder.resolve() == b.folder.resolve():
            raise RequestError(f"{b.folder} is given twice; give the recordings of two sides.")
        pair = _pair(a.folder, _inner(b.folder), 0.0)
        recording.refuse_incomplete(pair.a, pair.b, b.folder)
        return pair
    if a.folder is not None:
        raise RequestError(
            "Where A is a folder with recordings, B has to be one, too: it is recorded together with A."
        )
    pairs: list[compare.Pair | None] = []

    def act(request: Request) -> int:
        def work() -> int:
            pairs.append(_carried_out(request, b, folder, options))
            return VALID

        return guarded(work)

    words = list(a.overrides)
    if b is not None and b.overrides:
        words.append("against=" + shlex.join(b.overrides))
    code = hydra_app.with_request("equivalent", words, act)
    if code != VALID:
        raise SystemExit(code)
    return pairs[0]


def _carried_out(
    request: Request, b: Side | None, folder: Path, options: argparse.Namespace
) -> compare.Pair | None:
    planned = Campaign.planned(replace(request, against=None), to_be_run=False)
    other = Campaign.planned(request.against, to_be_run=False) if request.against else planned
    for one in (planned, other):
        rank_job.refuse(one, "equivalent")
        if one.first.launcher_config.get("tensor_parallel", 1) > 1:
            raise RequestError(
                "equivalent compares ranks that take samples of their own; leave launcher.tensor_parallel out."
            )
        if one.first.launcher_config.get("zero_stage") == 3:
            raise RequestError(
                "equivalent looks at weights behind every step, which launcher.zero_stage=3 has whole for evaluations "
                "alone; use launcher.zero_stage=2 or launcher.shard=fsdp."
            )
        if not options.synthetic:
            data.prepare(one)
    coarser = max(UNITS[one.first.precision] for one in (planned, other))
    work = {
        "steps": options.steps,
        "seeds": options.seeds,
        "data": "synthetic" if options.synthetic else "real",
        "start": None,
    }
    if b is not None and b.model is not None:
        _refuse_ranks_beside_a_model(planned)
        work["given"] = True
    _record(planned, work | {"whole": True}, folder / A)
    threads = 2 if planned.first.threads_per_rank == 1 else 1
    _record(planned, work | {"unit": coarser}, folder / "rounding")
    _record(_changed(planned, threads_per_rank=threads), work, folder / "threads")
    if planned.first.world_size == 1:  # weights that become wider would drop out of what ranks average
        with contextlib.suppress(LaunchError):  # not every layer exists in double precision
            _record(_changed(planned, precision=Precision.fp32), work | {"double": True}, folder / DOUBLE)
    if b is None:
        return None
    recorded = folder / B
    from_start: dict[str, Any] | None = None
    if b.folder is not None:
        recorded = _inner(b.folder)
    elif b.model is not None and b.names is not None:
        shapes = recording.read(folder / A).facts["shapes"]
        ours = {
            name.partition("/")[2]: shape for name, shape in shapes.items() if name.startswith("parameters/")
        }
        names = str(files.own_path(b.names).resolve())
        given = {"model": b.model, "names": names, "given": str(folder / A), "shapes": ours}
        _record(other, work | given, recorded)
    else:
        weights = folder / "start.npz"
        recording.write_start(recording.read(folder / A), weights)
        other = _changed(other, seed=planned.first.seed)
        from_start = work | {"start": str(weights)}
        with _checkout(b.revision) as checkout, _first_on_path(checkout):
            _record(other, from_start | {"whole": True}, recorded)
    pair = _pair(folder, recorded, coarser)
    if not compare.is_near(compare.climb(pair, options.rungs)):
        return pair
    for draw in DRAWS:
        _record(planned, work | {"unit": coarser, "draw": draw}, folder / _again(A, draw))
    _record(planned, work | {"unit": compare.COARSE * coarser}, folder / COARSE)
    if from_start is not None:
        with _checkout(b.revision) as checkout, _first_on_path(checkout):
            for draw in DRAWS:
                _record(other, from_start | {"unit": coarser, "draw": draw}, folder / _again(B, draw))
    return _pair(folder, recorded, coarser)


def _again(side: str, draw: int) -> str:
    return f"{side} rounding {draw}"


def _refuse_ranks_beside_a_model(planned: Campaign) -> None:
    job = planned.first
    if job.world_size > 1 or job.config["hyperparameters"]["gradient_accumulation_steps"] > 1:
        raise RequestError(
            "model= is compared with one rank that takes a batch whole; leave ranks and accumulation out."
        )


def _changed(planned: Campaign, **values: Any) -> Campaign:
    return planned.with_job(replace(planned.first, **values))


def _record(planned: Campaign, work: dict[str, Any], folder: Path) -> None:
    rank_job.carry_out(planned, "record", work, folder)


def _pair(folder: Path, b: Path, unit: float) -> compare.Pair:
    """A of a folder with its twins, and B."""
    twins = _there(folder, (*TWINS, *(_again(A, draw) for draw in DRAWS)))
    double = folder / DOUBLE
    return compare.Pair(
        a=recording.read(_inner(folder)),
        b=recording.read(b),
        twins=twins,
        b_again=_there(folder, [_again(B, draw) for draw in DRAWS]),
        coarse=_there(folder, (COARSE,)),
        double=recording.read(double) if recording.is_recording(double) else None,
        unit=unit or UNITS[Precision.fp32],
    )


def _there(folder: Path, names: Sequence[str]) -> list[recording.Recording]:
    return [recording.read(folder / name) for name in names if recording.is_recording(folder / name)]


def _inner(folder: Path) -> Path:
    return folder / A if (folder / A).is_dir() else folder


@contextlib.contextmanager
def _checkout(revision: str | None) -> Iterator[Path | None]:
    """A worktree of a revision, for as long as it is needed."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="train_bench_revision_") as parent:
        folder = Path(parent) / "checkout"
        git = ("git", "-C", str(ROOT), "worktree")
        try:
            process.answer(Launch(argv=(*git, "add", "--detach", str(folder), revision)))
        except LaunchError as error:
            raise RequestError(f"revision={revision} cannot be had from {ROOT}: {error}") from error
        try:
            if not (folder / "train_bench" / "equivalence" / "record.py").is_file():
                raise RequestError(
                    f"revision={revision} is from before train-bench could record; choose a later one, or compare the "
                    f"results of campaigns."
                )
            yield folder
        finally:
            process.answer(Launch(argv=(*git, "remove", "--force", str(folder))))


@contextlib.contextmanager
def _first_on_path(folder: Path | None) -> Iterator[None]:
    """Processes that are started import what lies there before all else."""
    if folder is None:
        yield
        return
    before = os.environ.get("PYTHONPATH")
    with variable("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), before)))):
        yield
