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
    rates = [_rate(one) for one in (test, performance)]
    if None in rates:
        yield (
            name,
            REVIEW,
            f"{name} and the performance test do not both have a result.",
        )
        return
    ratio = float(rates[0] or 0.0) / float(rates[1] or 1.0)
    if ratio > 1 + tolerance or (name == "TEST01" and ratio < 1 - tolerance):
        bounds = (
            f"{1 - tolerance:g} to {1 + tolerance:g}" if name == "TEST01" else f"at most {1 + tolerance:g}"
        )
        yield name, BREAKS, f"{name} has {ratio:.3f} times the speed of the performance test; {bounds}."


def _rate(test: LoadGenTest) -> float | None:
    """Queries or samples per second, by the trace or, without one, as logged; of a latency its inverse."""
    trace = loadgen_verdict.recompute(test, test.strictest_percentile)
    value = test.logged_value if trace is None else trace.value
    if not value:
        return None
    return value if test.scenario in ("Server", "Offline") else 1e9 / value


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
