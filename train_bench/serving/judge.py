"""Judge of LoadGen tests: the verdict follows from the trace, not from what the summary says.

`judge_folder` takes a test, a scenario of a submission (`performance/run_1`, `accuracy`, `TEST01`, `TEST04`) or any
folder above such. A finding that breaks a rule makes a test invalid, one for review does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from train_bench.errors import LogError
from train_bench.judge.finding import BREAKS, REVIEW, Finding
from train_bench.judge.loadgen_folders import RESULT, TRAINING_LOG, find_tests
from train_bench.serving import (
    checks,
    compliance,
    copies,
    loadgen_log,
    loadgen_verdict,
    official,
    rounds,
    scenario_table,
    served,
)
from train_bench.serving.assignment import FAILING_RUN
from train_bench.serving.judgement import TestJudgement
from train_bench.serving.loadgen_log import ALL_SAMPLES, PERFORMANCE, LoadGenTest
from train_bench.serving.loadgen_verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJudgement:
    """Judgement of all tests of a folder under a round; `round` is None where none is named. Of the result of
    `train-bench serve`, `findings` are those on the whole, and the run above the rate of the Server scenario has to be
    invalid."""

    round: str | None
    tests: tuple[TestJudgement, ...]
    unjudged: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    result: served.Served | None = None
    training: Sequence[Mapping[str, Any]] = ()
    scenarios: Sequence[Mapping[str, Any]] = ()

    @property
    def valid(self) -> bool:
        """True if no test is invalid or unreadable, and no rule is broken."""
        counted = (test for test in self.tests if self.result is None or test.file != FAILING_RUN)
        kept = all(finding.grade != BREAKS for finding in self.findings)
        return not self.unjudged and kept and all(test.valid for test in counted)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "round": self.round,
            "valid": self.valid,
            "tests": [test.as_json() for test in self.tests],
            "unjudged": [*self.unjudged],
            "answers_evaluated": False if any(test.mode == ALL_SAMPLES for test in self.tests) else None,
            "findings": [finding.as_json() for finding in self.findings],
        } | self._of_result()

    def _of_result(self) -> dict[str, Any]:
        if self.result is None:
            return {"scenarios": None}
        return {
            "benchmark": self.result.benchmark,
            "campaign": self.result.campaign,
            "quantisation": self.result.quantisation,
            "training": self.training,
            "scenarios": self.scenarios,
        }


def judge_folder(root: Path, round_name: str | None) -> ServingJudgement:
    """Judge all tests below `root`; a result of `train-bench serve` under its own rules unless others are named. Raises
    `UnknownName` for an unknown round, `LogError` for an unreadable `serving.json`."""
    result = served.read(root)
    if result is not None and round_name is None:
        round_name = result.ruleset
    rules = None if round_name is None else rounds.load(round_name)
    tests: list[LoadGenTest] = []
    unjudged: list[str] = []
    for folder in find_tests(root):
        try:
            tests.append(loadgen_log.read(folder))
        except LogError as error:
            unjudged.append(str(error))
    model = None if result is None else result.benchmark
    judged = tuple(_judge(test, root, rules, tests, model) for test in tests)
    judgement = ServingJudgement(round=round_name, tests=judged, unjudged=tuple(unjudged))
    if result is None:
        left = [path.parent.name for path in sorted(root.glob(f"run_*/{TRAINING_LOG}"))]
        found = iter(
            [
                (
                    "files",
                    BREAKS,
                    f"{left[0]} has the log of a training, and there is no {RESULT} that joins them.",
                )
            ]
            if left
            else []
        )
        return replace(judgement, findings=tuple(_findings(root.name, found)))
    trainings, watts = served.read_trainings(root, result), served.read_watts(root, result, tests)
    invalid = [test.folder for test, one in zip(tests, judged, strict=True) if not one.valid]
    rows = scenario_table.rows(result, tests, judged, watts)
    found = chain(
        served.check(root, result, trainings, tests, watts, invalid),
        copies.check_training(root, result),
        copies.check_copies(root, result, tests, rows),
    )
    return replace(
        judgement,
        findings=tuple(_findings(RESULT, found)),
        result=result,
        training=[*map(_training, result.runs, trainings)],
        scenarios=rows,
    )


def _training(run: served.ServedRun, training: served.Training | str) -> dict[str, Any]:
    """Minutes and joules to train the weights of a run, None for unknown ones."""
    if isinstance(training, str):
        return asdict(run) | {"minutes": None, "joules": None}
    return asdict(run) | {"minutes": training.record.minutes, "joules": training.joules}


def _judge(
    test: LoadGenTest,
    root: Path,
    rules: rounds.Round | None,
    tests: Sequence[LoadGenTest],
    model: str | None,
) -> TestJudgement:
    if rules is None or model not in rules.models:
        model = None if rules is None else rules.model_of(test.folder)
    name = str(test.folder.relative_to(root)) if test.folder != root else root.name
    percentile = test.strictest_percentile if rules is None else rules.percentile(test, model)
    trace = loadgen_verdict.recompute(test, percentile)
    logged = test.values.get("result_validity")
    said = chain(checks.check_percentile(test, rules, percentile), _said(test, trace, rules, model, tests))
    return TestJudgement(
        file=name,
        scenario=test.scenario,
        mode=test.mode,
        model=model,
        loadgen=None if logged is None else str(logged),
        trace=trace,
        official=None
        if rules is None or model is None or test.mode != PERFORMANCE
        else tuple(official.performance_check(test, rules, model)),
        value=test.logged_value if trace is None else trace.value,
        findings=tuple(_findings(name, said)),
    )


def _findings(file: str, said: Iterator[checks.CheckResult]) -> Iterator[Finding]:
    for check, grade, message in said:
        yield Finding(check=check, grade=grade, file=file, line=0, key=None, message=message)


def _said(
    test: LoadGenTest,
    trace: Verdict | None,
    rules: rounds.Round | None,
    model: str | None,
    tests: Sequence[LoadGenTest],
) -> Iterator[checks.CheckResult]:
    yield from checks.check_logs(test)
    if test.mode == PERFORMANCE:
        yield from checks.check_queries(test)
        if trace is not None:
            for check, grade, message in checks.check_conditions(test, trace):
                yield check, _grade(test, rules, check, grade), message
            as_logged = loadgen_verdict.recompute(test, test.percentile)
            yield from checks.check_logged_results(test, as_logged or trace)
            yield from checks.check_times(test)
        else:
            yield from checks.check_logged_verdict(test)
            if test.token_latencies and test.queries is not None:
                yield "trace", REVIEW, "The bounds are on latencies of tokens, which are not computed again."
    else:
        yield from checks.check_answers(test)
    if rules is not None:
        yield from checks.check_rules(test, rules, model)
    tolerance = compliance.OFFICIAL_TOLERANCE if rules is None else rules.speed_tolerance
    yield from compliance.check(test, tests, tolerance)


def _grade(test: LoadGenTest, rules: rounds.Round | None, check: str, grade: str) -> str:
    """Grade of a condition: a compliance test that is compared by its cost need not hold the bound of latencies."""
    by_cost = rules is not None and rules.speed_tolerance is None
    of_compliance = {*compliance.TESTS} & {*test.folder.parts[-1:]}
    return REVIEW if by_cost and of_compliance and check in ("latency_bound", "early_stopping") else grade
