"""RCP test: training needed by a submission against the reference convergence points, olympic means.

A submission that converges earlier fails. One that converges later is for review, by the mirror image of the test:
no official rule demands it, but training that works worse than the reference's does not measure it.

The statistics are those of the official checker, closed form instead of bisection: mean without the `drop` lowest
and highest values, population deviation of all values, pruning of points that their neighbours make superfluous,
interpolation over the batch size. `official_verdict` is the verdict of the official checker itself, including its
errors. Rounds of our own choose the level of the test and whether points are pruned (`rules/rounds/mini.yaml`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.core import files, plugins
from train_bench.core.digits import distinct
from train_bench.core.escape import plain
from train_bench.errors import LogError
from train_bench.judge.statistics import largest_acceptable_mean, olympic_mean, smallest_acceptable_mean
from train_bench.progress import Unit
from train_bench.rules.ruleset import BenchmarkRules, package_folder

VALUES = {unit: f"{unit.value}s to converge" for unit in Unit} | {Unit.EPOCH: "Epochs to converge"}
"""Fields of a record for the convergence of its runs; epochs and samples as in the official files."""

SHIPPED = plugins.PACKAGE / "rcp"
"""Folder of the points that come with train_bench."""

FOREIGN = "with reference points that did not come with train_bench"
NOT_COUNTED = "in an official round reference points of your own do not count"
TOO_FEW = "a reference point of your own needs twice the runs of a result, so these do not count"

PASS, FAIL, MISSING, NONE, CRASH = "pass", "fail", "missing", "none", "crash"

UNKNOWN_BATCH_SIZE = "the batch sizes of the logs differ or are missing"

# What the official checker counts a run as that did not converge, in any unit.
FAILED = 1e9

SLOWER_THAN_ANY = 1e30
"""Mean that passes at any point, in any unit."""

LARGEST_BATCH_SIZE = 2**53
"""Largest batch size of a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Convergence of the reference at one batch size; `count` is its number of runs, `values` the progress to the
    target of each in the benchmark's unit, and `seeds` theirs if they are known. `file` is that of a point that did
    not come with train_bench or the package, `program` the user's own program that made it. A `late` one came when its
    round had been judged: it takes no part at other batch sizes."""

    batch_size: int
    mean: float
    deviation: float
    count: int
    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None
    program: str | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RcpVerdict:
    """`verdict` is pass, fail, missing (no point near this batch size) or none (the benchmark has no points at all),
    or in the official verdict also crash. `mean` and `bound` are the reference's mean and the lowest mean that
    passes, in the benchmark's unit; `submission_mean` is the compared one. `factor` scales a result that converged
    faster than the reference (at least 1; 1 unless the verdict is pass; None if the official checker gives none).
    `upper_bound` is the highest mean that is not called slower than the reference, and `slower` is true above it:
    for review, whatever the verdict."""

    verdict: str
    message: str
    factor: float | None
    mean: float | None = None
    bound: float | None = None
    submission_mean: float | None = None
    upper_bound: float | None = None
    slower: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def load(rules: BenchmarkRules, rcp_folders: Sequence[Path]) -> tuple[Point, ...]:
    """All points of a benchmark: those of official rounds from the installed package, and ours from
    <folder>/<round>/<reference>.json of each of `rcp_folders`; the first counts if several have a batch size, and
    none of too few runs takes the place of another. A benchmark's folder gives points of that benchmark alone. Empty
    without points."""
    late = {size for erratum in rules.errata for size in erratum.late_points}
    theirs = tuple(replace(point, late=point.batch_size in late) for point in official(rules))
    known = {point.batch_size for point in theirs}
    ours: list[Point] = []
    for folder in rcp_folders:
        if _is_of_another_benchmark(folder, rules.reference):
            continue
        path = folder / rules.ruleset / f"{rules.reference}.json"
        read = _read(path, rules.drop, rules)
        if folder != SHIPPED:
            read = [replace(point, file=str(path)) for point in read]
        ours += [point for point in read if point.batch_size not in known]
        known |= {point.batch_size for point in read if not _has_too_few(point, rules)}
    hidden = [point for point in ours if _has_too_few(point, rules) and point.batch_size in known]
    points = [point for point in (*ours, *theirs) if point not in hidden]
    return tuple(sorted(points, key=lambda point: point.batch_size))


def _is_of_another_benchmark(folder: Path, reference: str) -> bool:
    of = [
        one.name for one in plugins.references().values() if not one.shipped and one.folder / "rcp" == folder
    ]
    return bool(of) and reference not in of


def digest(points: Sequence[Point]) -> str | None:
    """Digest of a benchmark's points, for plans and verdicts, whatever they were made with; None without points."""
    content = [[point.batch_size, point.mean, point.deviation, point.count] for point in points]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest() if points else None


def official(rules: BenchmarkRules) -> tuple[Point, ...]:
    """Points of the installed package. Its files hold one benchmark each, whose name may differ from that in logs."""
    folder = package_folder("rcp_checker") / rules.ruleset.replace("-", "_")
    return _official(folder / f"rcps_{rules.reference}.json", rules.drop)


@cache
def _official(path: Path, drop: int) -> tuple[Point, ...]:
    return tuple(sorted(_read(path, drop), key=lambda point: point.batch_size))


def _read(path: Path, drop: int, rules: BenchmarkRules | None = None) -> list[Point]:
    """Points of a file; with `rules`, those of their benchmark, in its unit."""
    if not os.access(path, os.R_OK):  # it is not there, or in somebody else's home folder
        return []
    units = VALUES if rules is None else (rules.unit,)
    names = [VALUES[unit] for unit in units]
    chosen = {
        name: record
        for name, record in read_records(path).items()
        if rules is None or record["Benchmark"] == rules.name
    }
    try:
        return [_point(name, record, drop, names) for name, record in chosen.items()]
    except (ArithmeticError, ValueError) as error:
        raise _no_points(path, error) from error


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Records of a file of points, by name. Raises `LogError` where the file or one of its records is damaged."""
    try:
        records = files.parse_json(files.read_bytes(path, largest=files.LARGEST_JSON_BYTES))
        if not isinstance(records, dict):
            raise ValueError("it has no records by name")
        for name, record in records.items():
            _check_record(name, record)
    except (ArithmeticError, OSError, RecursionError, ValueError) as error:
        raise _no_points(path, error) from error
    return records


def _no_points(path: Path, error: Exception) -> LogError:
    return LogError(
        f"{path} is not a file of reference convergence points: {plain(str(error))}; fix it, or move it elsewhere."
    )


def _check_record(name: str, record: Any) -> None:
    """Raises `ValueError` with the field of the record that is not as in the official format."""
    if not isinstance(record, dict):
        raise _wrong(name, "content", record, "fields with values")
    if not isinstance(record.get("Benchmark"), str):
        raise _wrong(name, "Benchmark", record.get("Benchmark"), "the name of one")
    if type(record.get("BS")) is not int or not 0 < record["BS"] <= LARGEST_BATCH_SIZE:
        raise _wrong(
            name, "BS", record.get("BS"), f"a batch size, a whole number from 1 to {LARGEST_BATCH_SIZE}"
        )
    if not isinstance(record.get("Hyperparams", {}), dict):
        raise _wrong(name, "Hyperparams", record["Hyperparams"], "values by their names")
    if not _are_numbers(record.get("Seeds", [])):
        raise _wrong(name, "Seeds", record["Seeds"], "a list of numbers")
    for values in VALUES.values():
        if not _are_numbers(record.get(values, [])) or not all(
            math.isfinite(value) and value >= 0 for value in record.get(values, [])
        ):
            raise _wrong(name, values, record[values], "a list of finite numbers from 0 on")


def _wrong(name: str, key: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{key} of its record '{name}' is {value!r:.80}, and allowed is {allowed}")


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) for value in values)


def _point(name: str, record: Mapping[str, Any], drop: int, fields: Sequence[str]) -> Point:
    values = next((record[field] for field in fields if field in record), None)
    if not values:
        raise ValueError(f"its record '{name}' has no {' or '.join(fields)}")
    return Point(
        batch_size=record["BS"],
        mean=olympic_mean(values, drop),
        deviation=statistics.pstdev(values),
        count=len(values),
        values=tuple(values),
        seeds=tuple(record.get("Seeds", ())),
        hyperparameters=record.get("Hyperparams", {}),
        program=None if record.get("Program") is None else str(record["Program"]),
    )


def prune(points: Sequence[Point]) -> tuple[Point, ...]:
    """Remove points of smaller batch size than the fastest one, and those that converge more slowly than their
    neighbours interpolate (one walk, stepping back after a removal). Of the points at a remaining batch size, the
    first counts."""
    if not points:
        return ()
    fastest = min(points, key=lambda point: point.mean)
    kept = [point for point in points if point.batch_size >= fastest.batch_size]
    index = 1
    while index < len(kept) - 1:
        between = _interpolate(kept[index].batch_size, kept[index - 1], kept[index + 1])
        if kept[index].mean > between.mean:
            del kept[index]
            index -= 1
        index += 1
    sizes = {point.batch_size for point in kept}
    first = {point.batch_size: point for point in reversed(points) if point.batch_size in sizes}
    return tuple(first[size] for size in sorted(sizes))


def used(points: Sequence[Point], rules: BenchmarkRules) -> tuple[Point, ...]:
    """Points that a submission is compared with, by batch size: of those that count, the ones that pruning leaves, or
    all of them if the round does not prune. Of several at a batch size the first counts. No late points: they stand for
    their own batch size alone."""
    counted = tuple(point for point in points_that_count(points, rules) if not point.late)
    if rules.rcp_pruned:
        return prune(counted)
    first = {point.batch_size: point for point in reversed(counted)}
    return tuple(first[size] for size in sorted(first))


def _interpolate(batch_size: int, low: Point, high: Point) -> Point:
    if low.batch_size == high.batch_size:
        return high
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    return Point(
        batch_size=batch_size,
        mean=low.mean + share * (high.mean - low.mean),
        deviation=low.deviation + share * (high.deviation - low.deviation),
        count=0,
    )


def verdict(
    points: Sequence[Point],
    rules: BenchmarkRules,
    batch_size: int | None,
    convergences: Sequence[float | None],
    broken: int = 0,
) -> RcpVerdict:
    """Compare the convergence of N runs (None: does not count) with the points of a benchmark. `broken` of those that
    do not count converged, and break rules. In an official round that has points, others do not count; the message
    names each point that did not come with train_bench."""
    counted = points_that_count(points, rules)
    decided = _verdict(counted, rules, batch_size, convergences, broken)
    others = [point for point in points if point not in counted]
    sentences = [
        f"; {what}: {', '.join(map(_source, foreign))}"
        for what, of in (
            (FOREIGN, counted),
            (NOT_COUNTED, [point for point in others if not _has_too_few(point, rules)]),
            (TOO_FEW, [point for point in others if _has_too_few(point, rules)]),
        )
        if (foreign := sorted((one for one in of if _is_foreign(one)), key=lambda one: one.batch_size))
    ]
    return replace(decided, message="".join((decided.message, *sentences)))


def points_that_count(points: Sequence[Point], rules: BenchmarkRules) -> tuple[Point, ...]:
    """Points that decide a verdict: in an official round those of the installed package, where it has any; elsewhere
    none that has fewer runs than `train-bench rcp` demands, unless it came with train_bench."""
    theirs = tuple(point for point in points if point.file is None)
    if theirs and rules.generated is None:
        return theirs
    return tuple(point for point in points if not _has_too_few(point, rules))


def _has_too_few(point: Point, rules: BenchmarkRules) -> bool:
    return point.file is not None and point.count < 2 * rules.runs


def _is_foreign(point: Point) -> bool:
    return point.file is not None or point.program is not None


def _source(point: Point) -> str:
    runs = f"{point.count} run{'s' if point.count != 1 else ''}"
    made_by = None if point.program is None else f"made by {point.program}"
    return plain(f"batch size {point.batch_size} ({', '.join(filter(None, (point.file, runs, made_by)))})")


def _verdict(
    points: Sequence[Point],
    rules: BenchmarkRules,
    batch_size: int | None,
    convergences: Sequence[float | None],
    broken: int,
) -> RcpVerdict:
    if not points:
        message = (
            "there are no reference convergence points for this benchmark, so its convergence is not tested"
        )
        return RcpVerdict(verdict=NONE, message=message, factor=1.0)
    if batch_size is None:
        return RcpVerdict(verdict=MISSING, message=UNKNOWN_BATCH_SIZE, factor=1.0)
    if len(convergences) <= 2 * rules.drop:
        message = f"too few runs to compare: {len(convergences)}"
        return RcpVerdict(verdict=MISSING, message=message, factor=1.0)
    failed = sum(value is None for value in convergences)
    if failed > rules.drop:
        message = _too_few_that_count(failed - broken, broken, len(convergences))
        return RcpVerdict(verdict=FAIL, message=message, factor=1.0)
    mean = olympic_mean([math.inf if value is None else value for value in convergences], rules.drop)
    decided = _decided(points, rules, batch_size, mean)
    bound = highest_mean_at(points, rules, batch_size)
    slower = bound is not None and mean > bound and not math.isclose(mean, bound)
    decided = replace(decided, upper_bound=bound, slower=slower)
    if decided.verdict != PASS:
        return replace(decided, factor=1.0)
    assert bound is not None  # a mean that passes has a point at or above its batch size
    return replace(decided, message=f"{decided.message}, and {_upper_limit(mean, bound, slower=slower)}")


def _too_few_that_count(slow: int, broken: int, of_all: int) -> str:
    if not broken:
        return f"insufficient convergence: {slow} of {of_all} runs did not converge"
    others = f", and {slow} did not converge" if slow else ""
    verb, counts = ("breaks", "counts") if broken == 1 else ("break", "count")
    return f"not compared: {broken} of {of_all} runs converged but {verb} the rules, so none of these {counts}{others}"


def _upper_limit(mean: float, bound: float, *, slower: bool) -> str:
    """Clause of a sentence that has the mean with two decimals already: it is repeated where more are needed."""
    said, limit = distinct(mean, bound)
    if said == limit:
        return f"equal to the highest acceptable {limit}, so not too slow"
    again = "" if said == f"{mean:.2f}" else f"{said} is "
    return (
        f"{again}above {limit}, so too slow: for review"
        if slower
        else f"{again}not above {limit}, so not too slow"
    )


def lowest_mean_at(points: Sequence[Point], rules: BenchmarkRules, batch_size: int) -> float | None:
    """Lowest mean at a batch size that passes the test; None without a point that counts at or above it."""
    counted = points_that_count(points, rules)
    return _decided(counted, rules, batch_size, SLOWER_THAN_ANY).bound if counted else None


def highest_mean_at(points: Sequence[Point], rules: BenchmarkRules, batch_size: int) -> float | None:
    """Highest mean at a batch size that is not called slower than the reference; None above all points.

    Unlike the lower bound it uses every point, pruned or not: at the batch size of a pruned one the reference is as
    slow as it says. Of several at a batch size the slowest counts. Below all points the smallest stands in: a
    smaller batch needs no more epochs.
    """
    there = [point for point in points if not point.late or point.batch_size == batch_size]
    slowest = {point.batch_size: point for point in sorted(there, key=lambda point: point.mean)}
    higher = min((size for size in slowest if size >= batch_size), default=None)
    if higher is None:
        return None
    lower = max((size for size in slowest if size < batch_size), default=None)
    if higher == batch_size or lower is None:
        point = slowest[higher]
        return highest_mean(point, point.count - 2 * rules.drop, rules)
    return highest_mean(_interpolate(batch_size, slowest[lower], slowest[higher]), 2 * rules.runs, rules)


def official_verdict(
    rules: BenchmarkRules, batch_sizes: Sequence[int | None], convergences: Sequence[float | None]
) -> RcpVerdict:
    """Verdict of the official checker on the logs of an entry: it takes at most one failed run (four of 3D U-Net) as
    a very large number, and crashes on gaps in its tables or the logs."""
    crash = next((erratum for erratum in rules.errata if erratum.rcp_crashes), None)
    if crash is not None:
        return RcpVerdict(verdict=CRASH, message=f"the official checker crashes ({crash.id})", factor=None)
    if len(set(batch_sizes)) > 1:
        message = "the official checker crashes where batch sizes differ"
        return RcpVerdict(verdict=CRASH, message=message, factor=None)
    points = official(rules)
    if not points:
        message = "the official checker crashes without a file of points"
        return RcpVerdict(verdict=CRASH, message=message, factor=None)
    failed = sum(value is None for value in convergences)
    if failed > rules.drop:
        message = f"insufficient convergence: {failed} of {len(convergences)} runs did not converge"
        return RcpVerdict(verdict=FAIL, message=message, factor=1.0)
    if not batch_sizes or batch_sizes[0] is None:
        return RcpVerdict(verdict=FAIL, message="the logs have no batch size", factor=1.0)
    if len(convergences) <= 2 * rules.drop:
        return RcpVerdict(verdict=FAIL, message="the mean of too few runs is not a number", factor=None)
    mean = olympic_mean([FAILED if value is None else value for value in convergences], rules.drop)
    decided = _decided(points, rules, batch_sizes[0], mean)
    return replace(decided, verdict=FAIL) if decided.verdict == MISSING else decided


def _decided(points: Sequence[Point], rules: BenchmarkRules, batch_size: int, mean: float) -> RcpVerdict:
    """Comparison with the point at a batch size, between two, or with the smallest. A late point at that batch size
    decides where the others have none at or below it, or refuse the mean."""
    decided = _decided_by_others(points, rules, batch_size, mean)
    late = [point for point in points if point.late and point.batch_size == batch_size]
    below = any(point.batch_size <= batch_size for point in used(points, rules))
    if not late or (below and decided.verdict == PASS):
        return decided
    source = f"point at batch size {batch_size}, which came when the round had been judged"
    return _compared(late[0], late[0].count - 2 * rules.drop, mean, rules, source)


def _decided_by_others(
    points: Sequence[Point], rules: BenchmarkRules, batch_size: int, mean: float
) -> RcpVerdict:
    kept = used(points, rules)
    exact = [point for point in kept if point.batch_size == batch_size]
    lower = [point for point in kept if point.batch_size < batch_size]
    higher = [point for point in kept if point.batch_size > batch_size]
    trimmed = 2 * rules.drop
    if exact:
        return _compared(exact[0], exact[0].count - trimmed, mean, rules, f"point at batch size {batch_size}")
    if lower and higher:
        low, high = lower[-1], higher[0]
        between = f"interpolated between batch sizes {low.batch_size} and {high.batch_size}"
        return _compared(_interpolate(batch_size, low, high), 2 * rules.runs, mean, rules, between)
    if lower:
        message = f"no point at or above batch size {batch_size}; the largest is {kept[-1].batch_size}"
        return RcpVerdict(verdict=MISSING, message=message, factor=1.0, submission_mean=mean)
    smallest = kept[0]
    absent = (
        f"the point at batch size {batch_size} is superfluous by the others"
        if any(point.batch_size == batch_size for point in points)
        else f"no point at batch size {batch_size}"
    )
    slower = f"{absent}, slower than the smallest one ({smallest.batch_size})"
    compared = _compared(smallest, smallest.count - trimmed, mean, rules, slower)
    if compared.verdict == PASS:
        return compared
    message = f"{absent}, and faster than the smallest one ({smallest.batch_size})"
    return replace(compared, verdict=MISSING, message=message)


def lowest_mean(point: Point, n_reference: int, rules: BenchmarkRules) -> float:
    """Lowest mean of a submission that passes against a point at the round's level; 0 where the reference scatters so
    widely that any mean does. N - 2 submission values whatever is dropped, as the official checker counts them."""
    return max(0.0, bound_of_test(point, n_reference, rules))


def bound_of_test(point: Point, n_reference: int, rules: BenchmarkRules) -> float:
    """Bound of the test of `lowest_mean` for values of either sign, as those of a simulation about 0 are."""
    bound = smallest_acceptable_mean(
        point.mean, point.deviation, n_reference, rules.runs - 2, rules.rcp_level
    )
    return bound - rules.rcp_allowance


def highest_mean(point: Point, n_reference: int, rules: BenchmarkRules) -> float:
    """Highest mean of a submission that is not slower than a point: the mirror image of `lowest_mean` at 5 %,
    whatever the round's level, because a slower one is for review and not refused."""
    bound = largest_acceptable_mean(point.mean, point.deviation, n_reference, rules.runs - 2)
    return bound + rules.rcp_allowance


def _compared(point: Point, n_reference: int, mean: float, rules: BenchmarkRules, source: str) -> RcpVerdict:
    bound = lowest_mean(point, n_reference, rules)
    passed = mean >= bound
    relation = "below" if not passed else "equal to" if mean == bound else "at or above"
    said, limit = distinct(mean, bound)
    compared = (
        f"is {relation} the lowest acceptable {limit}"
        if bound
        else "passes, as any does: the reference scatters too widely for a lowest acceptable one"
    )
    message = f"mean of {said} {rules.unit.value}s {compared} (reference {point.mean:.2f}; {source})"
    return RcpVerdict(
        verdict=PASS if passed else FAIL,
        message=message,
        factor=max(1.0, point.mean / mean) if mean > 0 else 1.0,
        mean=point.mean,
        bound=bound,
        submission_mean=mean,
    )
