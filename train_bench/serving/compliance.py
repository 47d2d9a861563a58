"""Compliance tests of a scenario: TEST01 (answers in performance mode) and TEST04 (one sample again and again)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.serving import loadgen_log, loadgen_verdict
from train_bench.serving.loadgen_log import ALL_SAMPLES, PERFORMANCE, LoadGenTest

TESTS = ("TEST01", "TEST04")

OFFICIAL_TOLERANCE = 0.1
"""Share by which a compliance test may be faster or, in TEST01, slower."""

SHORT_TOLERANCE = 0.2
SHORT_LATENCIES_NS = {
    "TEST01": {"SingleStream": 200_000, "MultiStream": 1_600_000},
    "TEST04": {"SingleStream": 200_000},
}
"""Latencies of a performance test up to which the scripts of the official tests allow `SHORT_TOLERANCE`
(mlcommons/inference 0f56342b, compliance/nvidia/TEST0[14]/verify_performance.py): what else a machine does is a large
part of them."""


def check(
    test: LoadGenTest, tests: Sequence[LoadGenTest], tolerance: float | None
) -> Iterator[tuple[str, str, str]]:
    """Findings of a test in a folder `TEST01` or `TEST04` beside the tests of its scenario, whose speed it has within
    `tolerance`, if that is not None."""
    name = next((part for part in reversed(test.folder.parts) if part in TESTS), None)
    if name is None or test.mode != PERFORMANCE:
        return
    scenario = _above(test.folder, name)
    siblings = [
        one for one in tests if scenario in one.folder.parents and not {*TESTS} & {*_below(one, scenario)}
    ]
    performance = next((one for one in siblings if one.mode == PERFORMANCE), None)
    accuracy = next((one for one in siblings if one.mode == ALL_SAMPLES), None)
    if tolerance is None:
        pass
    elif performance is None:
        yield name, REVIEW, f"{name} has no performance test beside it to be compared with."
    else:
        yield from _speeds(name, test, performance, tolerance)
    if name == "TEST01":
        yield from _answers(test, accuracy, scenario)


def _above(folder: Path, name: str) -> Path:
    return next(parent.parent for parent in (folder, *folder.parents) if parent.name == name)


def _below(test: LoadGenTest, scenario: Path) -> tuple[str, ...]:
    return test.folder.relative_to(scenario).parts


def _speeds(
    name: str, test: LoadGenTest, performance: LoadGenTest, tolerance: float
) -> Iterator[tuple[str, str, str]]:
    values = [_value(one) for one in (test, performance)]
    if None in values:
        yield (
            name,
            REVIEW,
            f"{name} and the performance test do not both have a result.",
        )
        return
    now, then = (float(value or 1.0) for value in values)
    if tolerance == OFFICIAL_TOLERANCE and then <= SHORT_LATENCIES_NS[name].get(performance.scenario, 0):
        tolerance = SHORT_TOLERANCE
    rates = performance.scenario in ("Server", "Offline")
    ratio, what = now / then, "speed" if rates else "latency"
    low, high = 1 - tolerance, 1 + tolerance
    if name == "TEST01":
        kept, bounds = low <= ratio <= high, f"{low:g} to {high:g}"
    else:
        kept, bounds = (ratio <= high, f"at most {high:g}") if rates else (ratio >= low, f"at least {low:g}")
    if not kept:
        yield (
            name,
            BREAKS,
            f"{name} has {ratio:.3f} times the {what} of the performance test; {bounds}. Where the machine was busy "
            "during one of them, repeat both.",
        )


def _value(test: LoadGenTest) -> float | None:
    """Metric by the trace or, without one, as logged: samples per second, or a latency in nanoseconds; None for 0."""
    trace = loadgen_verdict.recompute(test, test.strictest_percentile)
    return (test.logged_value if trace is None else trace.value) or None


def _answers(
    test: LoadGenTest, accuracy: LoadGenTest | None, scenario: Path
) -> Iterator[tuple[str, str, str]]:
    if accuracy is None or accuracy.answers is None:
        yield "TEST01", REVIEW, "TEST01 has no accuracy test beside it to be compared with."
        return
    answers = test.answers
    if answers is None or not len(answers.index):
        try:
            answers = loadgen_log.read_answers(scenario / "TEST01" / "accuracy")
        except OSError as error:
            yield "TEST01", BREAKS, f"The answers of TEST01 cannot be read ({error.strerror})."
            return
    if answers is None or not len(answers.index):
        yield "TEST01", BREAKS, "TEST01 has logged no answer."
        return
    right = dict(zip(accuracy.answers.index.tolist(), accuracy.answers.data, strict=True))
    pairs = zip(answers.index.tolist(), answers.data, strict=True)
    different = sum(right.get(index) != data for index, data in pairs)
    if different:
        yield (
            "TEST01",
            BREAKS,
            f"{different} of {len(answers.data)} answers of TEST01 differ from those of the accuracy test.",
        )
