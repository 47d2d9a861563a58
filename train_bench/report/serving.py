"""Judgement of LoadGen tests, for a terminal. Takes the object that `judge --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.judge.loadgen_folders import PAGE
from train_bench.report.console import print_line
from train_bench.report.findings import GRADES

METRICS = {
    "early_stopping_latency_ss": "90th percentile latency, by early stopping: {:,.0f} ns",
    "early_stopping_latency_ms": "99th percentile latency of a query, by early stopping: {:,.0f} ns",
    "result_completed_samples_per_sec": "{:.6g} samples/s completed",
    "result_samples_per_second": "{:.6g} samples/s",
}


def show(judged: Mapping[str, Any], console: Console) -> None:
    """Each test with its verdicts, its metric and its findings; the verdict on all of them is the last line."""
    for test in judged["tests"]:
        model = "" if test["model"] is None else f"{test['model']}, "
        print_line(
            console,
            f"{test['file']}: {model}{test['scenario']}, {test['mode']}: {'VALID' if test['valid'] else 'INVALID'}"
            + (", as it has to be" if _to_fail(test, judged) and not test["valid"] else ""),
        )
        if test["value"] is not None:
            print_line(console, f"  {METRICS[test['metric']].format(test['value'])}{_extent(test)}")
        for finding in test["findings"]:
            print_line(console, f"  [{finding['check']}, {GRADES[finding['grade']]}] {finding['message']}")
        if test["loadgen"] is not None:
            trace = (
                "there is no trace to check it by"
                if test["trace"] is None
                else f"its trace gives {test['trace']}"
            )
            print_line(console, f"  LoadGen says {test['loadgen']}; {trace}.")
        if test["official"] is not None:
            refused = ", ".join(test["official"]["reasons"])
            said = f"refuses it ({refused})" if refused else "accepts it"
            print_line(console, f"  The official submission checker {said}.")
    for reason in judged["unjudged"]:
        print_line(console, f"Not judged: {reason}")
    for line in scenario_lines(judged):
        print_line(console, line)
    if judged["scenarios"]:
        print_line(console, cost_of_training(judged))
    for finding in judged["findings"]:
        print_line(console, f"[{finding['check']}, {GRADES[finding['grade']]}] {finding['message']}")
    counted = [test for test in judged["tests"] if not _to_fail(test, judged)]
    valid = sum(test["valid"] is True for test in counted)
    print_line(console, f"{valid} of {len(counted)} tests are valid.")
    if judged["answers_evaluated"] is False:
        print_line(console, _accuracy(judged))
    print_line(console, _verdict(judged))


def show_summary(judged: Mapping[str, Any], console: Console) -> None:
    """A line for each scenario, the tests that are not valid, and the verdict on all of them."""
    for test in judged["tests"]:
        if test["valid"] is not True and not _to_fail(test, judged):
            print_line(console, f"{test['file']}: {test['scenario']}, {test['mode']}: INVALID")
    for line in scenario_lines(judged):
        print_line(console, line)
    counted = [test for test in judged["tests"] if not _to_fail(test, judged)]
    valid = sum(test["valid"] is True for test in counted)
    step = f"`train-bench judge {judged['folder']}` has each, and the page {PAGE} the cost of an answer"
    print_line(console, f"{valid} of {len(counted)} tests are valid; {step}.")
    print_line(console, _verdict(judged))


def _accuracy(judged: Mapping[str, Any]) -> str:
    """Source of the quality of the answers, which needs the data to be computed again."""
    stated = "not judged" if judged["scenarios"] is None else "as serving.json states it"
    return f"Accuracy: {stated}; the answers were not evaluated again, because that needs the data."


def _verdict(judged: Mapping[str, Any]) -> str:
    """VALID, and what is for review; NOT VALID, and the checks that say so."""
    counted = [test for test in judged["tests"] if not _to_fail(test, judged)]
    findings = [*judged["findings"], *(finding for test in counted for finding in test["findings"])]
    grade = REVIEW if judged["valid"] else BREAKS
    checks = dict.fromkeys(finding["check"] for finding in findings if finding["grade"] == grade)
    if judged["valid"]:
        return f"VALID; for review: {', '.join(checks)}" if checks else "VALID"
    reasons = [*checks, *(["tests that cannot be read"] if judged["unjudged"] else [])]
    return f"NOT VALID: {', '.join(reasons)}"


UNITS = {
    "Offline": (1.0, "samples/s"),
    "Server": (1.0, "samples/s completed"),
    "SingleStream": (1e6, "ms, 90th percentile latency"),
    "MultiStream": (1e6, "ms, 99th percentile latency of a query of 8"),
}
"""Divisor and unit of the metric of each scenario."""


def scenario_lines(judged: Mapping[str, Any]) -> list[str]:
    """A line for each scenario of a result."""
    return [_scenario(row) for row in judged["scenarios"] or ()]


def cost_of_training(judged: Mapping[str, Any]) -> str:
    """Time and energy to train beside what serving takes, as a sentence."""
    minutes = [run["minutes"] for run in judged["training"] if run["minutes"]]
    offline = next((row["mean"] for row in judged["scenarios"] if row["scenario"] == "Offline"), None)
    if not minutes or not offline:
        return "The times of training and of the Offline scenario are not both known."
    trained = sum(minutes) / len(minutes)
    return (
        f"Training took {trained:.3g} minutes on average. A million answers take {1e6 / offline / 60:.3g} minutes "
        f"offline: after {trained * 60 * offline:,.0f} answers, serving has taken longer than training. "
        f"{_energy(judged)}"
    )


def _energy(judged: Mapping[str, Any]) -> str:
    """Energy to train beside that of answers, or the runs without power logs."""
    joules = {run["index"]: run["joules"] for run in judged["training"]}
    offline = next(row for row in judged["scenarios"] if row["scenario"] == "Offline")
    if not all(joules.values()):
        lacking = _without_power(joules, "training run", "training runs")
        return f"Energy: unknown, because {lacking} (run with energy=auto; serve then measures, too)."
    trained = sum(joules.values()) / len(joules)
    words = f"Training took {trained:,.0f} J on average"
    served = offline["joules_per_million"]
    if not served:
        lacking = _without_power(offline["joules"], "Offline test", "Offline tests")
        return f"{words}; that of serving is unknown, because {lacking}."
    return (
        f"{words}, a million answers take {served:,.0f} J: after {1e6 * trained / served:,.0f} answers, serving has "
        "cost more energy than training."
    )


def _without_power(joules: Mapping[Any, float | None], one: str, several: str) -> str:
    """Clause with the number of runs or tests without a usable power log, and their runs."""
    lacking = [str(run) for run, value in joules.items() if not value]
    if len(lacking) == len(joules):
        return f"no {one} has a usable power log"
    has = "has" if len(lacking) == 1 else "have"
    runs = "run" if len(lacking) == 1 else "runs"
    return (
        f"{len(lacking)} of {len(joules)} {several} {has} no usable power log ({runs} {', '.join(lacking)})"
    )


def _scenario(row: Mapping[str, Any]) -> str:
    divisor, unit = UNITS[row["scenario"]]
    if row["mean"] is None:
        why = ", because no metric is a positive number" if row["values"] else ""
        return f"{row['scenario']}: no result{why}"
    mean = f"{row['scenario']}: {row['mean'] / divisor:.4g} {unit}"
    if row["low"] is not None:
        low, high = (row[end] / divisor for end in ("low", "high"))
        mean += f" (95 % confidence interval {low:.4g} to {high:.4g}, weights of {len(row['values'])} runs)"
    return mean + (f", {row['rate']:.4g} arriving" if row["rate"] is not None else "")


def _to_fail(test: Mapping[str, Any], judged: Mapping[str, Any]) -> bool:
    """True for the run above the rate of the Server scenario."""
    return judged["scenarios"] is not None and test["file"] == "Server_above"


def _extent(test: Mapping[str, Any]) -> str:
    return "" if test["queries"] is None else f" (queries: {test['queries']}; {test['seconds']:.3g} s)"
