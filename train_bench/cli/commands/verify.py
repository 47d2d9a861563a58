"""Evaluate the weights that a campaign has kept (keep_weights=true) again, and compare with what its logs say."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cattrs
from rich.console import Console

from train_bench.campaign import command_trust, lock, rank_job, runner
from train_bench.cli import campaign_paths, composing
from train_bench.cli.arguments import Parser
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core import files
from train_bench.core.digits import significant
from train_bench.core.job import EVALUATED, KEPT_WEIGHTS, WEIGHTS, Job
from train_bench.errors import RequestError
from train_bench.judge.checks.verified import path_of
from train_bench.logs.record import RunRecord, read_record
from train_bench.plan import discover
from train_bench.plan.plan import Plan
from train_bench.plan.request import Request
from train_bench.report.console import make_console, print_line
from train_bench.rules import ruleset

WORK = "verify"

TOLERANCE = 1e-5
"""How far a metric may be from the logged one: see decision 0114."""

OTHER_RANKS = ("launcher", "device", "data_dir")
"""Options that change where weights are evaluated, and not what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run with the files of its weights, which are those that its log names."""

    job: Job
    record: RunRecord
    paths: tuple[Path, ...]


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench verify", description=__doc__)
    parser.add_argument(
        "folder",
        type=campaign_paths.one,
        metavar="CAMPAIGN",
        help=f"folder of a campaign, {campaign_paths.HELP}",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="launcher=NAME",
        help="and launcher.OPTION=VALUE, device=, data_dir=: evaluate there; by default as it was trained",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="NUMBER",
        help=f"how far a metric may be from the logged one (default {TOLERANCE:g}: sums in another order)",
    )
    composing.answer_options(parser)
    options = parser.parse_intermixed_args(arguments)
    composing.refuse_file(options.to)
    for word in options.overrides:
        if word.partition("=")[0].partition(".")[0] not in OTHER_RANKS or "=" not in word:
            raise RequestError(
                f"'{word}' is no option of verify, which takes launcher=, launcher.OPTION=, device= and data_dir=."
            )
    if not 0 <= options.tolerance < math.inf:
        raise RequestError(f"--tolerance is {options.tolerance:g}; it is a number from 0 on.")
    planned = runner.open_folder(options.folder)

    def act(request: Request) -> Answer:
        return _verify(_elsewhere(planned, request, options.overrides), options.tolerance)

    return composing.with_request(WORK, options, options.overrides, act)


def _elsewhere(planned: Plan, request: Request, overrides: Sequence[str]) -> Plan:
    """The plan, whose ranks are started as the overrides have it. Code is taken from where it lies here."""
    named = {word.partition("=")[0].partition(".")[0] for word in overrides}
    job = planned.jobs[0]
    changes: dict[str, Any] = {}
    if "launcher" not in named:
        command_trust.refuse_launcher(planned, WORK)
    else:
        launcher = request.config.launcher
        changes |= {
            "launcher": launcher.name,
            "launcher_config": asdict(launcher),
            "nodes": launcher.nodes,
            "nproc_per_node": launcher.nproc_per_node,
            "threads_per_rank": launcher.threads_per_rank,
        }
    if "device" in named:
        changes["device"] = request.config.device
    if "data_dir" in named:
        folder = files.own_path(str(request.config.data_dir)).resolve()
        changes["config"] = {**job.config, "data_dir": str(folder)}
    changes["reference_folder"] = discover.folder_of("references", job.reference)
    changes["launcher_folder"] = discover.folder_of("launchers", changes.get("launcher", job.launcher))
    jobs = tuple(replace(one, **changes) for one in planned.jobs)
    plan = replace(planned, launcher=jobs[0].launcher, world_size=jobs[0].world_size, jobs=jobs)
    config = cattrs.structure(jobs[0].config, discover.reference_config(planned.reference))
    reason = discover.launcher(runner.launcher_config(plan)).refuse(config)
    if reason is not None:
        raise RequestError(reason)
    return plan


def _verify(plan: Plan, tolerance: float) -> Answer:
    rank_job.refuse(plan, WORK)
    kept = list(_kept(plan))
    runner.refuse_missing_data(plan)
    folder = plan.jobs[0].folder
    runs = []
    with lock.held(folder / "ranks" / "verify.lock", f"Verifying {folder}"):
        for one in kept:
            run = _compared(plan, one, tolerance)
            files.write_json(path_of(one.job.result_file), run)
            verdict = "verified" if run["agree"] else f"DIFFERS by more than {tolerance:g}"
            print_line(
                make_console(),
                f"run {one.job.index}: logged {_in_words(run, 'logged')}, found {_in_words(run, 'found')}: {verdict}",
            )
            runs.append({"index": one.job.index, **run})
    code = VALID if all(run["agree"] for run in runs) else INVALID
    return Answer(
        code=code, content={"runs": runs, "ranks": plan.world_size, "launcher": plan.launcher}, show=_show
    )


def _compared(plan: Plan, kept: Kept, tolerance: float) -> dict[str, Any]:
    """Logged and found metrics of a run, and whether they agree."""
    found, logged = _evaluated(plan, kept), _metrics(plan, kept.record)
    return {
        "log": kept.record.sha256,
        "weights": [path.name for path in kept.paths],
        "launcher": plan.launcher,
        "ranks": plan.world_size,
        "logged": logged,
        "found": found,
        "tolerance": tolerance,
        "agree": all(
            (now := found.get(name)) is not None and abs(now - value) <= tolerance
            for name, value in logged.items()
        ),
    }


def _show(content: Mapping[str, Any], console: Console) -> None:
    agreeing = sum(run["agree"] for run in content["runs"])
    print_line(
        console,
        f"quality verified: {agreeing} of {len(content['runs'])} runs, on {content['ranks']} rank(s) by "
        f"{content['launcher']}",
    )


def _kept(plan: Plan) -> Iterator[Kept]:
    """Every run with a log, whose weights are held against it before any is evaluated."""
    rules = ruleset.load(plan.ruleset).benchmark(plan.benchmark)
    finished = [job for job in plan.jobs if job.result_file.exists()]
    if not finished:
        raise RequestError(
            f"The campaign in {plan.jobs[0].folder} has no result yet; there is nothing to verify."
        )
    for job in finished:
        record, log = read_record(job.result_file, rules)
        kept = next((event.value for event in log.events if event.key == KEPT_WEIGHTS), None)
        if not isinstance(kept, Mapping) or not isinstance(kept.get("files"), Mapping) or not kept["files"]:
            why = f": {kept['error']}" if isinstance(kept, Mapping) and "error" in kept else ""
            raise RequestError(
                f"{job.result_file} names no weights{why}; they are kept by a campaign with keep_weights=true."
            )
        if any(not math.isfinite(value) for value in _metrics(plan, record).values()):
            raise RequestError(
                f"The last evaluation of {job.result_file} gave no number; nothing can be verified."
            )
        yield Kept(job=job, record=record, paths=tuple(_unchanged(job, kept["files"])))


def _unchanged(job: Job, named: Mapping[str, Any]) -> Iterator[Path]:
    for name, digest in named.items():
        path = job.folder / WEIGHTS / name
        if Path(name).name != name:
            raise RequestError(f"{job.result_file} names the weights '{name}', which is no name of a file.")
        try:
            found = files.digest(path)
        except OSError as error:
            raise RequestError(
                f"{path} cannot be read ({error.strerror}); these are the weights that {job.result_file} names."
            ) from error
        if found != digest:
            raise RequestError(
                f"{path} is not what {job.result_file} names: its sha256 is {found[:12]}..., and that in the log "
                f"{str(digest)[:12]}.... It was changed, or belongs to another run; put back the file of this run."
            )
        yield path


def _evaluated(plan: Plan, kept: Kept) -> dict[str, float | None]:
    """The metrics that the weights give, in processes of their own; None for what is no number."""
    folder = kept.job.folder / "ranks" / f"verify_{kept.job.index}"
    one = replace(plan, jobs=(kept.job,))
    job = rank_job.carry_out(one, WORK, {"files": [str(path) for path in kept.paths]}, folder)
    seen: dict[str, float | None] = files.read_json(job.folder / EVALUATED)
    shutil.rmtree(folder)
    return seen


def _metrics(plan: Plan, record: RunRecord) -> dict[str, float]:
    return dict(plan.jobs[0].target.quality_of(record.quality).metrics)


def _in_words(run: Mapping[str, Mapping[str, float | None]], side: str) -> str:
    """Metrics of one side, in digits that tell them from those of the other."""
    other = run["found" if side == "logged" else "logged"]
    return ", ".join(f"{name} {_number(value, other.get(name))}" for name, value in run[side].items())


def _number(value: float | None, other: float | None) -> str:
    if value is None:
        return "no number"
    return significant(value, value if other is None else other, digits=6)[0]
