"""Forecast the time to train: minutes of the score with confidence intervals, from a probe, logs, published entries
or a stated throughput. Without any of these a probe is run here, as the options of `run` say."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.campaign import start
from train_bench.campaign.opened import Campaign
from train_bench.cli import campaign_paths, composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import say, warn
from train_bench.errors import RequestError
from train_bench.forecast import advisor, families, log_pace, published_pace, samples, simulate
from train_bench.forecast.families import Size
from train_bench.forecast.samples import Samples
from train_bench.forecast.simulate import Pace
from train_bench.judge import locate, rcp
from train_bench.judge.entry import benchmark_of
from train_bench.judge.published import published_entries
from train_bench.judge.rcp import Point
from train_bench.logs.record import SUCCESS, RunRecord, read_record
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.progress import Unit
from train_bench.report import forecast as report
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

PROBE_SHARE = 0.2
"""Share of the evaluations that a run is expected to need which is run to measure the pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Subject of a forecast. `ranks` are accelerators where it is from published entries; it and `samples_per_unit` are
    None where nothing says them; `sizes` are those that step times are known of."""

    name: str
    rules: BenchmarkRules
    points: tuple[Point, ...]
    of_reference: Samples
    pace: Pace
    ranks: int | None
    batch_size: int
    samples_per_unit: float | None
    sizes: tuple[Size, ...] = ()


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(_parser(), arguments)
    _refuse(options)
    if options.logs is not None:
        _refuse_overrides(overrides, (), "--from takes benchmark, batch size and ranks from the logs")
        return composing.give(_forecast(_of_logs(options.logs, options.ruleset), options), options)
    if options.published is not None:
        return composing.give(_forecast(_of_published(options, overrides), options), options)

    def act(request: Request) -> Answer:
        case = _stated(request, options) if options.throughput is not None else _probed(request, options)
        return _forecast(case, options)

    return composing.with_request("forecast", options, overrides, act)


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("forecast")
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument(
        "--from",
        dest="logs",
        type=campaign_paths.one,
        metavar="PATH",
        help=f"a log or a campaign, finished or not, of any round, {campaign_paths.HELP}",
    )
    sources.add_argument(
        "--published",
        metavar="SUBMITTER",
        help="published entries of this submitter; needs benchmark=, --accelerator, --accelerators and --batch-size",
    )
    sources.add_argument(
        "--throughput",
        type=float,
        metavar="NUMBER",
        help="training samples per second, of all ranks together",
    )
    parser.add_argument(
        "--evaluation-seconds", type=float, metavar="NUMBER", help="of one evaluation, with --throughput"
    )
    parser.add_argument(
        "--probe-blocks",
        type=int,
        metavar="NUMBER",
        help="how many blocks a probe runs, each up to an evaluation; without, a fifth of those expected",
    )
    parser.add_argument("--accelerator", metavar="NAME", help="as the submitter writes it")
    parser.add_argument("--accelerators", type=int, metavar="NUMBER", help="of the system")
    parser.add_argument("--batch-size", type=int, metavar="NUMBER", help="global, of the runs")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="published entries instead of those that came along"
    )
    parser.add_argument(
        "--ruleset", metavar="ROUND", help="round of logs that do not say it, or of published entries"
    )
    parser.add_argument(
        "--runs", type=int, metavar="NUMBER", help="of a campaign; without, as many as the rules ask"
    )
    parser.add_argument("--price", type=float, metavar="NUMBER", help="of a rank or accelerator for an hour")
    parser.add_argument(
        "--advise",
        metavar="RANKS",
        help="a table of batch sizes on these numbers of ranks, for example 1,2,4",
    )
    return parser


def _refuse(options: argparse.Namespace) -> None:
    of_published = {"accelerator": options.accelerator, "accelerators": options.accelerators}
    of_published |= {"batch-size": options.batch_size, "table": options.table}
    given = [name for name, value in of_published.items() if value is not None]
    if given and options.published is None:
        raise RequestError(f"--{given[0]} is for --published; leave it out, or name a submitter.")
    if options.evaluation_seconds is not None and options.throughput is None:
        raise RequestError("--evaluation-seconds is for --throughput; other sources have measured it.")
    if options.probe_blocks is not None and options.probe_blocks < 1:
        raise RequestError(f"--probe-blocks is {options.probe_blocks}; a probe has at least 1 block.")
    if options.runs is not None and options.runs < 1:
        raise RequestError(f"--runs is {options.runs}; a campaign has at least 1 run.")
    if options.price is not None and not 0 <= options.price < float("inf"):
        raise RequestError(f"--price is {options.price:g}; give what a rank costs in an hour, at least 0.")


def _refuse_overrides(overrides: Sequence[str], allowed: Sequence[str], why: str) -> None:
    others = [word for word in overrides if word.partition("=")[0] not in allowed]
    if others:
        raise RequestError(f"{why}; leave out {', '.join(others)}.")


def _of_logs(path: Path, ruleset_name: str | None) -> Case:
    """From a log, or the logs of one campaign, whether its runs are finished or not."""
    found = locate.find(path, ruleset_name).locations
    if len(found) > 1:
        raise RequestError(
            f"{path} holds {len(found)} campaigns; give one of them, for example {found[0].folder}."
        )
    held = ruleset.load(found[0].ruleset)
    name = str(found[0].plan_or_package.get("benchmark") or benchmark_of(found[0], held))
    rules = held.benchmark(name)
    read = [read_record(file, rules) for file in found[0].files]
    sizes = {record.global_batch_size for record, _ in read}
    if len(sizes) > 1 or None in sizes:
        listed = ", ".join(map(str, sizes))
        raise RequestError(f"The logs in {path} have batch sizes {listed}; give logs that name one.")
    batch_size = next(size for size in sizes if size is not None)
    measured = [log_pace.measure(record, log, rules) for record, log in read if record.evaluations]
    if not measured:
        raise RequestError(
            f"No log in {path} has an evaluation, so there is no pace yet; wait for the first."
        )
    points = rcp.load(rules, discover.rcp_folders()) or _own_point([record for record, _ in read], batch_size)
    return Case(
        name=name,
        rules=rules,
        points=points,
        of_reference=samples.expect(points, rules, batch_size),
        pace=log_pace.pace(measured, "log", str(path)),
        ranks=found[0].world_size,
        batch_size=batch_size,
        samples_per_unit=_of_records([record for record, _ in read], rules),
    )


def _of_records(records: Sequence[RunRecord], rules: BenchmarkRules) -> float | None:
    """Samples of a unit by what the logs say of their training set."""
    if rules.unit is Unit.EPOCH:
        return next((float(one.train_samples) for one in records if one.train_samples), None)
    return published_entries.samples_per_unit(rules)


def _own_point(records: Sequence[RunRecord], batch_size: int) -> tuple[Point, ...]:
    """The campaign's own runs where the benchmark has no points."""
    values = tuple(
        one.convergence for one in records if one.status == SUCCESS and one.convergence is not None
    )
    if not values:
        return ()
    mean = sum(values) / len(values)
    return (Point(batch_size=batch_size, mean=mean, deviation=0.0, count=len(values), values=values),)


def _of_published(options: argparse.Namespace, overrides: Sequence[str]) -> Case:
    """From published entries of a family of systems."""
    _refuse_overrides(
        overrides, ("benchmark",), "--published needs only benchmark=NAME besides its own options"
    )
    values = dict(word.partition("=")[::2] for word in overrides)
    needed = {"benchmark=": values.get("benchmark"), "--accelerator": options.accelerator}
    needed |= {"--accelerators": options.accelerators, "--batch-size": options.batch_size}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise RequestError(f"--published needs {', '.join(missing)}, too.")
    benchmark, size, count = values["benchmark"], options.batch_size, options.accelerators
    if count < 1 or size < 1:
        raise RequestError(f"--accelerators is {count} and --batch-size {size}; both have to be at least 1.")
    entries = published_entries.read(options.table) if options.table else published_entries.shipped()
    known = families.families(entries, published_pace.needed)
    family = published_pace.family(known, benchmark, options.published, options.accelerator, options.ruleset)
    times = families.fit(family.sizes, families.learn([one for one in known if one is not family], benchmark))
    rules = published_pace.rules_of(family.round, benchmark)
    points = rcp.official(rules)
    return Case(
        name=benchmark,
        rules=rules,
        points=points,
        of_reference=samples.expect(points, rules, size),
        pace=published_pace.pace(family, times, family.sizes, count, size),
        ranks=count,
        batch_size=size,
        samples_per_unit=published_entries.samples_per_unit(rules),
        sizes=family.sizes,
    )


def _stated(request: Request, options: argparse.Namespace) -> Case:
    planned = Campaign.planned(request, to_be_run=False)
    per_unit = _samples_per_unit(planned)
    if per_unit is None:
        raise RequestError(
            f"{planned.plan.variant} counts {planned.first.unit.value}s, of which nothing says how many samples they "
            f"train on; leave --throughput out, and a probe measures the pace."
        )
    return _planned(planned, log_pace.stated(options.throughput, options.evaluation_seconds, per_unit))


def _probed(request: Request, options: argparse.Namespace) -> Case:
    """Run the first blocks of one run in a folder of their own; they are no result."""
    batch = discover.batch(request.config.launcher)
    if batch is not None and not batch.wait:
        raise RequestError(
            "A probe is measured at once, and this launcher hands it to a queue and returns; add launcher.wait=true, "
            "or give a campaign that was run there with --from."
        )
    planned = Campaign.planned(request, to_be_run=False)
    of_reference = _expected(planned)
    schedule = of_reference.schedule
    blocks = options.probe_blocks or _blocks(of_reference)
    request.config.runs = 1
    request.config.benchmark.evaluation.until = schedule.first + (blocks - 1) * schedule.period
    with contextlib.redirect_stdout(sys.stderr):  # what is printed is the forecast
        folder = start.carry_out(request, say, warn)
    assert folder is not None  # it was waited for
    record, log = read_record(folder / "result_0.txt", planned.rules)
    return _planned(
        planned, log_pace.pace([log_pace.measure(record, log, planned.rules)], "probe", str(folder))
    )


def _blocks(of_reference: Samples) -> int:
    """As many as fit into a fifth of what a run is expected to need."""
    schedule = of_reference.schedule
    evaluations = 1 + (of_reference.mean() - schedule.first) / schedule.period
    return max(1, int(PROBE_SHARE * evaluations))


def _planned(planned: Campaign, pace: Pace) -> Case:
    return Case(
        name=planned.plan.variant,
        rules=planned.rules,
        points=planned.points,
        of_reference=_expected(planned),
        pace=pace,
        ranks=planned.plan.world_size,
        batch_size=planned.first.config["hyperparameters"]["global_batch_size"],
        samples_per_unit=_samples_per_unit(planned),
    )


def _expected(planned: Campaign) -> Samples:
    """Samples that the reference needs, up to where the plan's own schedule ends."""
    size = planned.first.config["hyperparameters"]["global_batch_size"]
    return replace(samples.expect(planned.points, planned.rules, size), schedule=planned.first.schedule)


def _samples_per_unit(planned: Campaign) -> float | None:
    job = planned.first
    if job.unit is Unit.STEP:
        return float(job.config["hyperparameters"]["global_batch_size"])
    return float(job.schedule.samples_per_unit) if job.unit in (Unit.EPOCH, Unit.SAMPLE) else None


def _forecast(case: Case, options: argparse.Namespace) -> Answer:
    runs = case.rules.runs if options.runs is None else options.runs
    forecast = simulate.simulate(case.of_reference, case.pace, runs=runs, drop=case.rules.drop)
    content: dict[str, Any] = {
        "benchmark": case.name,
        "ruleset": case.rules.ruleset,
        "points_digest": rcp.digest(case.points),
        "batch_size": case.batch_size,
        "ranks": case.ranks,
        "unit": case.rules.unit.value,
        **forecast.as_json(),
        "cost": None,
        "convergence": {
            "source": case.of_reference.source,
            "extrapolated": case.of_reference.extrapolated,
            "message": case.of_reference.message,
        },
        "pace": {
            "source": case.pace.source,
            "message": case.pace.message,
            "notes": list(case.pace.notes),
        },
        "advice": None if options.advise is None else _advice(case, options).as_json(),
    }
    if options.price is not None:
        if case.ranks is None:
            raise RequestError(
                "These logs do not say on how many ranks they were written; leave out --price."
            )
        content["cost"] = forecast.run.times(options.price * case.ranks * runs / 60).as_json()
    return Answer(content=content, show=report.show)


def _advice(case: Case, options: argparse.Namespace) -> advisor.Advice:
    """Batch sizes on other numbers of ranks. How a step grows with both is learned from published systems."""
    try:
        ranks = [int(count) for count in options.advise.split(",")]
    except ValueError:
        raise RequestError(
            f"--advise is {options.advise}; give numbers of ranks, for example --advise 1,2,4."
        ) from None
    if case.samples_per_unit is None or case.ranks is None:
        raise RequestError(
            "Nothing says how many samples a unit of progress has, or on how many ranks these logs were written, so "
            "there is no step to go by; forecast from a probe or from published entries."
        )
    unit = float(np.median(case.pace.unit))
    step = Size(
        accelerators=case.ranks,
        batch_size=case.batch_size,
        log_step=math.log(unit * case.batch_size / case.samples_per_unit),
    )
    known = families.families(published_entries.shipped(), published_pace.needed)
    times = families.fit(case.sizes or (step,), families.learn(known, case.rules.name))
    return advisor.advise(
        case.points,
        case.rules,
        ranks,
        lambda size, count: float(np.exp(np.median(times.log_seconds(count, size)))),
        samples_per_unit=case.samples_per_unit,
        eval_seconds=float(np.median(case.pace.evaluation)),
        price=options.price,
    )
