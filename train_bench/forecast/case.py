"""Subjects of forecasts: of logs, of published entries; and the object of a forecast of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.errors import RequestError
from train_bench.forecast import advisor, families, log_pace, published_pace, samples, simulate
from train_bench.forecast.families import Size
from train_bench.forecast.samples import Samples
from train_bench.forecast.settings import Settings
from train_bench.forecast.simulate import Pace
from train_bench.judge import locate, rcp
from train_bench.judge.entry import benchmark_of
from train_bench.judge.published import published_entries
from train_bench.judge.rcp import Point
from train_bench.logs.record import SUCCESS, RunRecord, read_record
from train_bench.progress import Unit
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


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


def case_of_logs(
    path: Path, settings: Settings, overrides: Sequence[str], rcp_folders: Sequence[Path]
) -> Case:
    """Case of a log, or of the logs of one campaign, whether its runs are finished or not."""
    _refuse_overrides(overrides, (), "--from takes benchmark, batch size and ranks from the logs")
    found = locate.find(path, settings.ruleset).locations
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
    points = rcp.load(rules, rcp_folders) or _own_point([record for record, _ in read], batch_size)
    return Case(
        name=name,
        rules=rules,
        points=points,
        of_reference=samples.expect(points, rules, batch_size),
        pace=log_pace.pace(measured, "log", str(path)),
        ranks=found[0].world_size,
        batch_size=batch_size,
        samples_per_unit=_samples_per_unit([record for record, _ in read], rules),
    )


def _samples_per_unit(records: Sequence[RunRecord], rules: BenchmarkRules) -> float | None:
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


def case_of_published(submitter: str, settings: Settings, overrides: Sequence[str]) -> Case:
    """Case of published entries of a family of systems."""
    _refuse_overrides(
        overrides, ("benchmark",), "--published needs only benchmark=NAME besides its own options"
    )
    values = dict(word.partition("=")[::2] for word in overrides)
    needed: dict[str, Any] = {"benchmark=": values.get("benchmark"), "--accelerator": settings.accelerator}
    needed |= {"--accelerators": settings.accelerators, "--batch-size": settings.batch_size}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise RequestError(f"--published needs {', '.join(missing)}, too.")
    benchmark, size, count = values["benchmark"], settings.batch_size, settings.accelerators
    assert size is not None and count is not None and settings.accelerator is not None
    if count < 1 or size < 1:
        raise RequestError(f"--accelerators is {count} and --batch-size {size}; both have to be at least 1.")
    entries = published_entries.read(settings.table) if settings.table else published_entries.shipped()
    known = families.families(entries, published_pace.needed)
    family = published_pace.family(known, benchmark, submitter, settings.accelerator, settings.ruleset)
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


def document(case: Case, settings: Settings) -> dict[str, Any]:
    """Object of `forecast --json`: times of a campaign, their cost, and advice where it is asked for."""
    runs = case.rules.runs if settings.runs is None else settings.runs
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
        "advice": None
        if settings.advise is None
        else _advice(case, settings.advise, settings.price).as_json(),
    }
    if settings.price is not None:
        if case.ranks is None:
            raise RequestError(
                "These logs do not say on how many ranks they were written; leave out --price."
            )
        content["cost"] = forecast.run.times(settings.price * case.ranks * runs / 60).as_json()
    return content


def _advice(case: Case, listed: str, price: float | None) -> advisor.Advice:
    """Batch sizes on other numbers of ranks. How a step grows with both is learned from published systems."""
    try:
        ranks = [int(count) for count in listed.split(",")]
    except ValueError:
        raise RequestError(
            f"--advise is {listed}; give numbers of ranks, for example --advise 1,2,4."
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
        price=price,
    )


def _refuse_overrides(overrides: Sequence[str], allowed: Sequence[str], why: str) -> None:
    others = [word for word in overrides if word.partition("=")[0] not in allowed]
    if others:
        raise RequestError(f"{why}; leave out {', '.join(others)}.")
