"""Result of `train-bench serve`: `serving.json`, and its checks against the logs of training and of LoadGen.

The file joins; it proves nothing by itself. Weights, verified quality and evaluation set are those that the copied logs
of training name, and each LoadGen log has the digest that it had when it was written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cattrs

from train_bench.core import files
from train_bench.core.digits import significant
from train_bench.core.escape import plain
from train_bench.core.finite_number import finite_number
from train_bench.core.job import KEPT_WEIGHTS, Precision
from train_bench.errors import LogError, RequestError
from train_bench.judge.checks.verified import TOLERANCE, Verification, verification_of
from train_bench.judge.energy import WITHOUT_LOG, WITHOUT_LOGS, Energy, mean_watts, measure
from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.judge.loadgen_folders import LEFT_BY_A_RUN, LEFT_BY_A_TEST, RESULT, TRAINING_LOG
from train_bench.logs.log import Log
from train_bench.logs.record import SUCCESS, RunRecord, read_record
from train_bench.quality import Target
from train_bench.rules import ruleset
from train_bench.serving import evaluation_data, quality_rule, rounds
from train_bench.serving.assignment import (
    ACCURACY,
    FAILING_RUN,
    PERFORMANCE_RUN,
    QUANTISATIONS,
    SCENARIOS,
    folder_of,
    power_log_of,
)
from train_bench.serving.checks import LOGGED_DIGITS, CheckResult
from train_bench.serving.loadgen_log import LARGEST_SETTING, PERFORMANCE, LoadGenTest
from train_bench.serving.rounds import Round

CLOCK_FACTOR, CLOCK_SLACK_US = 1.02, 1000.0
"""Factor and microseconds by which the processor time of a thread may be above the length of a trace."""

MIN_STEP = 1.04
"""Factor between the rate of the Server scenario and that of the run that fails above it: 5 %, as logged."""

LARGEST_CPU_WAIT = 0.1
"""Share of denied processor time above which a test is for review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """Run whose weights were served: the digest of its log, and the weights and the quality that this log names."""

    index: int
    log: str
    weights: Mapping[str, str]
    quality: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training of served weights, by the copy of its log: the last quality, the `verification` of the weights, and the
    energy of the run; None for one that is not known, with the `energy_problem` where there are power logs."""

    record: RunRecord
    log: Log
    target: Target
    quality: Mapping[str, float]
    verification: Verification | None
    joules: float | None
    energy_problem: str | None


Trainings = Sequence[Training | str]
"""Training of each run of a result, or the reason for which its log cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRate:
    """Test at a rate (samples/s) with the weights of a run; `p99_ms` is None without a trace."""

    rate: float
    run: int
    valid: bool
    seconds: float
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRate:
    """Rate of the Server scenario, whether a test 5 % above it failed, and the rates that were tried."""

    rate: float
    fails_above: bool
    tried: tuple[TriedRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedScenario:
    """Scenario: metrics of the answers in accuracy mode (None for NaN or infinity), and digests of the weights as
    served, by run."""

    quality: Mapping[str, Mapping[str, float | None]]
    quantised: Mapping[str, str]
    server: ServerRate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorWait:
    """Processor time that a test was denied: `lost` is its share of what was wanted."""

    lost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTest:
    """LoadGen test: the run of its weights, the processor time of an answer, and digests of its files."""

    run: int
    mode: str
    seconds: float
    answer_us: float
    files: Mapping[str, str]
    processor_wait: ProcessorWait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Content of `serving.json`."""

    ruleset: str
    benchmark: str
    training_ruleset: str
    campaign: str
    software: Mapping[str, Any]
    device: str
    precision: str
    batching: Mapping[str, float]
    quantisation: str
    runs: tuple[ServedRun, ...]
    scenarios: Mapping[str, ServedScenario]
    tests: Mapping[str, ServedTest]
    threads: int | None = None


def read(folder: Path) -> Served | None:
    """The result in a folder; None if it has none. Raises `LogError` for one that no version has written."""
    path = folder / RESULT
    if not os.path.lexists(path):
        return None
    try:
        served = _strict().structure(files.read_json(path), Served)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise LogError(
            f"{path} is not a result of train-bench serve; give the folder as it was written."
        ) from error
    other = sorted(served.scenarios.keys() - {*SCENARIOS.values()})
    if other:
        raise LogError(
            f"{path} has the scenario {plain(other[0])[:80]}; those of serve are {', '.join(SCENARIOS.values())}."
        )
    if served.quantisation not in QUANTISATIONS:
        raise LogError(
            f"{path} has the quantisation {plain(served.quantisation)[:80]}; those of serve are "
            f"{', '.join(QUANTISATIONS)}."
        )
    for name, test in served.tests.items():
        if not 0 < test.answer_us < math.inf:
            raise LogError(
                f"{path} has answer_us {test.answer_us:g} for {name}; it has to be a positive number."
            )
        if test.processor_wait is not None and not 0 <= test.processor_wait.lost <= 1:
            raise LogError(f"{path} has lost {test.processor_wait.lost:g} for {name}; it has to be a share.")
    for scenario in served.scenarios.values():
        if scenario.server is not None and not 0 < scenario.server.rate < math.inf:
            raise LogError(f"{path} has the rate {scenario.server.rate:g}; it has to be a positive number.")
    return served


@cache
def _strict() -> cattrs.Converter:
    """Converter that makes no number of a text and no text of a number, and takes finite numbers alone."""

    def exactly(kind: type) -> Callable[[Any, type], Any]:
        def structure(value: Any, _: type) -> Any:
            number = kind in (int, float)
            if number and finite_number(value, below=LARGEST_SETTING) is None:
                raise ValueError("it is not a finite number")
            if not isinstance(value, (int, float) if kind is float else kind):
                raise TypeError(f"it is not of type {kind.__name__}")
            return kind(value)

        return structure

    converter = cattrs.Converter()
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, exactly(kind))
    return converter


def check(
    root: Path,
    served: Served,
    trainings: Trainings,
    tests: Sequence[LoadGenTest],
    watts: Mapping[str, float | str],
    invalid: Sequence[Path],
) -> Iterator[CheckResult]:
    """Findings on the result as a whole. `trainings` and `watts` are as they were read, `invalid` are the folders of
    invalid tests."""
    rules = rounds.load(served.ruleset)
    yield from _check_files(root, served, tests)
    yield from _check_places(root, served, rules, tests)
    yield from _check_runs(served, trainings, rules)
    for scenario, found in served.scenarios.items():
        yield from _check_scenario(root, served, rules, scenario)
        if scenario == "Server":
            yield from _check_rate(root, found.server, tests, invalid)
    yield from _check_stated_costs(root, served, tests)
    yield from _check_disturbances(served)
    yield from _check_power_logs(served, trainings, watts)


def _check_power_logs(
    served: Served, trainings: Trainings, watts: Mapping[str, float | str]
) -> Iterator[CheckResult]:
    """Power logs that give no power: only energy is null then."""
    for run, training in zip(served.runs, trainings, strict=True):
        if isinstance(training, Training) and training.energy_problem is not None:
            yield (
                "energy",
                REVIEW,
                f"The energy of training run {run.index} is unknown: {training.energy_problem}.",
            )
    for name, power in watts.items():
        if isinstance(power, str) and power != WITHOUT_LOG:
            yield "energy", REVIEW, f"The energy of the test {name} is unknown: {power}."


def _check_disturbances(served: Served) -> Iterator[CheckResult]:
    measured = {name: test for name, test in served.tests.items() if test.mode == PERFORMANCE}
    lost = {
        name: 0.0 if test.processor_wait is None else test.processor_wait.lost
        for name, test in measured.items()
    }
    unknown = [name for name, test in measured.items() if test.processor_wait is None]
    if 0 < len(unknown) < len(measured):
        yield (
            "disturbed",
            REVIEW,
            f"{RESULT} states for {len(measured) - len(unknown)} of {len(measured)} performance tests how long they "
            f"waited for a processor, and not for {plain(unknown[0])[:80]}; serve states it for all or none.",
        )
    disturbed = {name: share for name, share in lost.items() if share > LARGEST_CPU_WAIT}
    if disturbed:
        worst = max(disturbed, key=disturbed.__getitem__)
        yield (
            "disturbed",
            REVIEW,
            f"In {len(disturbed)} of {len(measured)} performance tests, other processes took more than "
            f"{100 * LARGEST_CPU_WAIT:.0f} % of the processor time that was wanted; most in {worst}, "
            f"{100 * disturbed[worst]:.0f} %.",
        )


def _check_files(root: Path, served: Served, tests: Sequence[LoadGenTest]) -> Iterator[CheckResult]:
    here = {str(test.folder.relative_to(root)) for test in tests}
    for name in sorted(here ^ served.tests.keys()):
        where = "is not there" if name in served.tests else f"is not in {RESULT}"
        yield "files", BREAKS, f"The test {name} {where}."
    for run in served.runs:
        for file in LEFT_BY_A_RUN:
            if not (root / f"run_{run.index}" / file).is_file():
                yield "files", BREAKS, f"run_{run.index}/{file} is missing; serve leaves one for every run."
    for name in sorted(here & served.tests.keys()):
        for file in LEFT_BY_A_TEST:
            if file not in served.tests[name].files:
                yield "files", BREAKS, f"{RESULT} has no {name}/{file}; LoadGen leaves one in every test."
        for file, digest in served.tests[name].files.items():
            if Path(file).name != file or _digest(root / name / file) != digest:
                yield (
                    "files",
                    BREAKS,
                    f"{name}/{file} is not the file that LoadGen has written: its sha256 differs.",
                )


def _check_places(
    root: Path, served: Served, rules: Round, tests: Sequence[LoadGenTest]
) -> Iterator[CheckResult]:
    """Logs of another scenario, mode or data set than their place is for."""
    model = rules.models.get(served.benchmark)
    if not served.scenarios:
        yield "tests", BREAKS, f"{RESULT} has no scenario."
    for test in tests:
        name = str(test.folder.relative_to(root))
        stated = served.tests.get(name)
        if stated is None:
            continue
        scenario = "Server" if name == FAILING_RUN else "".join(Path(name).parts[1:2])
        if scenario not in served.scenarios:
            yield "tests", BREAKS, f"The test {name} is of the scenario {scenario}, which {RESULT} has not."
        due: dict[str, Any] = {"scenario": scenario, "mode": stated.mode}
        found: dict[str, Any] = {"scenario": test.scenario, "mode": test.mode}
        if model is not None:
            due["number of samples"] = model.samples
            found["number of samples"] = int(test.values["qsl_reported_total_count"])
        for what, value in due.items():
            if found[what] != value:
                yield (
                    "tests",
                    BREAKS,
                    f"The log of {name} has the {what} {found[what]}; its place is for {value}.",
                )


def _digest(path: Path) -> str | None:
    try:
        return files.digest(path)
    except OSError:
        return None


def _check_runs(served: Served, trainings: Trainings, rules: Round) -> Iterator[CheckResult]:
    if len({run.index for run in served.runs}) < rules.weights:
        yield (
            "weights",
            BREAKS,
            f"The weights of {len(served.runs)} runs were served; {served.ruleset} asks for {rules.weights}.",
        )
    if served.quantisation == "bf16" and served.precision != Precision.bf16.value:
        yield (
            "quality",
            BREAKS,
            f"{RESULT} has the quantisation bf16 and the precision {plain(served.precision)[:80]}; serve computes such "
            "weights in bf16.",
        )
    for run, training in zip(served.runs, trainings, strict=True):
        if isinstance(training, str):
            yield "weights", BREAKS, f"The log of run {run.index} cannot be read: {training}"
            continue
        yield from _check_run(run, training)
        quality = training.quality
        for scenario, found in served.scenarios.items():
            metrics = found.quality.get(str(run.index), {})
            share = quality_rule.share(training.target, metrics, quality)
            words = f"Run {run.index}, {scenario}: the quality of the answers is {_words(metrics)}, that of the log "
            if share < rules.quality:
                yield "quality", BREAKS, f"{words}{_words(quality)}; at least {rules.quality:g} of it."
            elif served.quantisation == "none" and not quality_rule.equal(
                metrics, quality, training.verification.bound if training.verification else 0.0
            ):
                yield "quality", BREAKS, f"{words}{_words(quality)}; without quantisation they are equal."
            elif rules.quality and share > 1 / rules.quality:
                yield (
                    "quality",
                    REVIEW,
                    f"{words}{_words(quality)}; rounded weights are seldom better than exact ones by more than "
                    f"{100 * (1 - rules.quality):.0f} %.",
                )


def read_trainings(root: Path, served: Served) -> Trainings:
    """Training of each run of a result."""
    return tuple(_training_or_reason(root, served, run) for run in served.runs)


def read_watts(root: Path, served: Served, tests: Sequence[LoadGenTest]) -> dict[str, float | str]:
    """Mean watts of each performance test of a result, or the reason for which they are unknown."""
    names = {str(test.folder.relative_to(root)): test.folder for test in tests}
    return {
        name: mean_watts(power_log_of(str(folder)))
        for name, folder in names.items()
        if name in served.tests and name.endswith(PERFORMANCE_RUN)
    }


def _training_or_reason(root: Path, served: Served, run: ServedRun) -> Training | str:
    try:
        return _read_training(root, served, run)
    except (LogError, RequestError) as error:
        return str(error)


def _read_training(root: Path, served: Served, run: ServedRun) -> Training:
    benchmark = ruleset.load(served.training_ruleset).benchmark(served.benchmark)
    record, log = read_record(root / f"run_{run.index}" / TRAINING_LOG, benchmark)
    result, energy = verification_of(record, benchmark.target), measure(record)
    return Training(
        record=record,
        log=log,
        target=benchmark.target,
        quality=dict(benchmark.target.quality_of(record.quality).metrics),
        verification=result if result is not None and result.agree else None,
        joules=energy.joules if isinstance(energy, Energy) else None,
        energy_problem=None if isinstance(energy, Energy) or energy == WITHOUT_LOGS else energy,
    )


def _check_run(run: ServedRun, training: Training) -> Iterator[CheckResult]:
    record, log, result = training.record, training.log, training.verification
    if result is None:
        yield "weights", BREAKS, f"Run {run.index} has no verification of its weights that holds."
    elif result.tolerance > TOLERANCE:
        yield (
            "quality",
            REVIEW,
            f"The weights of run {run.index} were verified within {result.tolerance:g}; the default of verify is "
            f"{TOLERANCE:g}.",
        )
    if record.status != SUCCESS:
        yield "weights", BREAKS, f"Run {run.index} has not reached its target."
    named = next((event.value for event in log.events if event.key == KEPT_WEIGHTS), None)
    if record.sha256 != run.log or not isinstance(named, Mapping) or named.get("files") != dict(run.weights):
        yield "weights", BREAKS, f"The weights of run {run.index} are not those that its log names."
    if training.quality != dict(run.quality):
        yield "quality", BREAKS, f"The verified quality of run {run.index} is not that of its log."
    data = evaluation_data.read(log)
    if data.overlaps:
        yield (
            "data",
            BREAKS,
            f"Run {run.index} was trained on {data.common} of {data.compared} samples that it is asked for.",
        )


def _check_scenario(root: Path, served: Served, rules: Round, scenario: str) -> Iterator[CheckResult]:
    indices = [run.index for run in served.runs]
    due = [folder_of(scenario, index) / name for index in indices for name in (ACCURACY, PERFORMANCE_RUN)]
    model = rules.models.get(served.benchmark)
    due += [folder_of(scenario, indices[0]) / name for name in (model.compliance if model else ()) if indices]
    for folder in due:
        test = served.tests.get(str(folder))
        if test is None:
            yield "tests", BREAKS, f"There is no test {folder}."
            continue
        if f"run_{test.run}" != folder.parts[0]:
            yield "tests", BREAKS, f"The test {folder} is one with the weights of run {test.run}."
        if test.mode == PERFORMANCE:
            accuracy = [served.tests.get(str(folder_of(scenario, index) / ACCURACY)) for index in indices]
            costs = [one.answer_us for one in accuracy if one is not None]
            yield from _check_cost(str(folder), test.answer_us, min(costs, default=0.0), rules)


def _check_stated_costs(root: Path, served: Served, tests: Sequence[LoadGenTest]) -> Iterator[CheckResult]:
    """Processor time of answers against the length of the trace: one thread computes them."""
    for test in tests:
        stated = served.tests.get(str(test.folder.relative_to(root)))
        if stated is None or test.queries is None or not len(test.queries):
            continue
        lasted = float((test.queries.scheduled_ns + test.queries.latency_ns).max()) / 1e3
        most = (lasted * CLOCK_FACTOR + CLOCK_SLACK_US) / len(test.queries)
        if stated.answer_us > most:
            cost, at_most = significant(stated.answer_us, most)
            yield (
                "cost",
                BREAKS,
                f"{RESULT} states {cost} us of processor time for an answer of {test.folder.relative_to(root)}; its "
                f"trace leaves {at_most} us to one thread.",
            )


def _check_cost(folder: str, cost: float, accuracy: float, rules: Round) -> Iterator[CheckResult]:
    """Processor time of an answer against the least in accuracy tests, which ask for every sample once. On a shared
    machine it is far steadier than the speed, and an answer that was kept costs next to nothing."""
    if rules.cost_tolerance is None:
        return
    least = accuracy / (1 + rules.cost_tolerance)
    if cost < least:
        yield (
            "cost",
            BREAKS,
            f"An answer of {folder} took {cost:.4g} us of processor time, one in accuracy mode {accuracy:.4g} us; "
            f"at least {least:.4g} us: the same work is due in both.",
        )


def _check_rate(
    root: Path, server: ServerRate | None, tests: Sequence[LoadGenTest], invalid: Sequence[Path]
) -> Iterator[CheckResult]:
    rates = {
        test.folder: float(test.settings["effective_target_qps"])
        for test in tests
        if test.scenario == "Server"
    }
    at = {rate for folder, rate in rates.items() if folder.parts[-2:] == ("performance", "run_1")}
    above = root / FAILING_RUN
    if len(at) > 1:
        listed = ", ".join(f"{rate:g}" for rate in sorted(at))
        yield "rate", BREAKS, f"The weights were served at different rates: {listed}."
    if server is None or any(not math.isclose(rate, server.rate, rel_tol=LOGGED_DIGITS) for rate in at):
        stated = "no rate" if server is None else f"the rate {server.rate:g}"
        yield "rate", BREAKS, f"{RESULT} has {stated} of the Server scenario; the logs are to have the same."
    if above not in rates:
        yield (
            "rate",
            REVIEW,
            "No run 5 % above the rate of the Server scenario has failed, so a higher one may hold.",
        )
    elif above not in invalid or (at and rates[above] < MIN_STEP * max(at)):
        yield (
            "rate",
            BREAKS,
            f"The run {FAILING_RUN} is not an invalid one at a rate 5 % above that of the others.",
        )


def _words(metrics: Mapping[str, float | None]) -> str:
    words = (
        f"{name} {'not a number' if value is None else f'{value:.6g}'}" for name, value in metrics.items()
    )
    return ", ".join(words) or "unknown"
