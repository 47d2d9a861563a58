"""Checks of one LoadGen test. Each yields its name, its grade and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
from scipy import stats

from train_bench.core.digits import significant
from train_bench.core.escape import plain
from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.serving import early_stopping
from train_bench.serving.loadgen_log import ALL_SAMPLES, PERFORMANCE, LoadGenTest
from train_bench.serving.loadgen_verdict import Verdict
from train_bench.serving.rounds import SEEDS, Round

CheckResult = tuple[str, str, str]

LOGGED_DIGITS = 1e-5
"""Relative tolerance of numbers that LoadGen logs with six digits."""

ARRIVALS_P = 1e-4
"""Probability of a Kolmogorov-Smirnov test below which gaps of arrivals are not exponential."""

CLOCK_SLACK_S = 5.0
"""Difference between the clocks of a log that a busy machine explains."""


def check_logs(test: LoadGenTest) -> Iterator[CheckResult]:
    """Errors of LoadGen, unreadable lines, and a summary that differs from the detail log."""
    for error in test.errors:
        yield "loadgen_error", BREAKS, f"LoadGen has logged an error: {error}"
    if test.problems:
        more = f" ({len(test.problems)} such lines)" if len(test.problems) > 1 else ""
        yield "detail", BREAKS, f"The detail log has an unreadable line: {test.problems[0]}{more}."
    logged = test.values.get("result_validity")
    if test.mode == PERFORMANCE and logged is None:
        yield "detail", BREAKS, "The detail log has no result_validity, so the test did not end."
    elif test.verdict is not None and logged != test.verdict:
        yield "summary", BREAKS, f"The summary says {test.verdict}, the detail log {logged}."
    elif test.verdict is None and test.mode == PERFORMANCE:
        yield "summary", REVIEW, "The summary is missing or has no verdict."


def check_logged_verdict(test: LoadGenTest) -> Iterator[CheckResult]:
    """Without a trace: what LoadGen itself says."""
    if test.values.get("result_validity") == "INVALID":
        reason = plain(str(test.values.get("result_invalid_reason") or "no reason logged")).strip()
        yield "loadgen_verdict", BREAKS, f"LoadGen says INVALID: {reason}"


def check_queries(test: LoadGenTest) -> Iterator[CheckResult]:
    """Whole and plausible samples of the trace."""
    queries = test.queries
    if queries is None or not len(queries):
        what = "no trace" if queries is None else "a trace without samples"
        yield "trace", REVIEW, f"The test has {what}; its results cannot be computed again."
        return
    if queries.malformed:
        yield "trace", BREAKS, f"The trace has {queries.malformed} unreadable samples."
    lost = int(queries.sample.max()) + 1 - len(np.unique(queries.sample))
    if lost or len(np.unique(queries.sample)) != len(queries) or queries.sample[0] != 0:
        yield (
            "dropped_samples",
            BREAKS,
            f"The trace has {len(queries)} samples numbered up to {int(queries.sample.max())}: some are missing or "
            "appear twice.",
        )
    early = int(((queries.latency_ns < queries.issued_ns) | (queries.issued_ns < 0)).sum())
    if early:
        yield "trace", BREAKS, f"{early} samples were completed before they were issued."
    loaded = test.values.get("loaded_qsl_set")
    if isinstance(loaded, list) and all(type(index) is int for index in loaded):
        strange = int((~np.isin(queries.index, loaded)).sum())
        if strange:
            yield "samples", BREAKS, f"{strange} samples are not among those that were loaded."
    if test.scenario == "Server" and len(queries) > 1:
        yield from _arrivals(test)


def _arrivals(test: LoadGenTest) -> Iterator[CheckResult]:
    assert test.queries is not None
    gaps = np.diff(np.sort(test.queries.scheduled_ns)) / 1e9
    rate = float(test.settings["effective_target_qps"])
    p = float(stats.kstest(gaps, stats.expon(scale=1 / rate).cdf).pvalue) if rate > 0 else 0.0
    if p < ARRIVALS_P:
        yield (
            "arrivals",
            BREAKS,
            f"Queries did not arrive as a Poisson process of {rate:g} per second (Kolmogorov-Smirnov p = {p:.1g}; at "
            f"least {ARRIVALS_P:g}): the mean gap is {gaps.mean():.3g} s.",
        )


def check_conditions(test: LoadGenTest, trace: Verdict) -> Iterator[CheckResult]:
    """Conditions of a valid test, by the trace."""
    settings = test.settings
    if not trace.min_duration_met:
        least = float(settings["effective_min_duration_ms"]) / 1e3
        seconds, at_least = significant(trace.seconds, least)
        yield "min_duration", BREAKS, f"The test lasted {seconds} s; at least {at_least} s."
    if not trace.min_queries_met:
        samples = 0 if test.queries is None else len(test.queries)
        least_queries, least_samples = (
            settings[f"effective_min_{kind}_count"] for kind in ("query", "sample")
        )
        yield (
            "min_queries",
            BREAKS,
            f"The test had {trace.queries} queries of {samples} samples; at least {least_queries} queries of "
            f"{least_samples} samples.",
        )
    percentile = trace.percentile
    if trace.latency_bound_met is False:
        bound = float(settings["effective_target_latency_ns"]) / 1e6
        yield (
            "latency_bound",
            BREAKS,
            f"The {percentile * 100:g}th percentile is above its bound of {bound:g} ms.",
        )
    if trace.early_stopping_met is False:
        slow = int(trace.results.get("result_overlatency_query_count", 1))
        needed = early_stopping.fewest_queries(slow, percentile)
        yield (
            "early_stopping",
            BREAKS,
            f"{trace.queries} queries are too few for the {percentile * 100:g}th percentile; at least {needed}"
            + (f" with {slow} above the bound." if test.scenario == "Server" else "."),
        )


def check_logged_results(test: LoadGenTest, trace: Verdict) -> Iterator[CheckResult]:
    """Results of the detail log that differ from those of the trace."""
    for key, computed in trace.results.items():
        if key in test.values and not _same(test.values[key], computed):
            yield (
                "edited_result",
                BREAKS,
                f"The detail log has {key} {test.values[key]}; the trace gives {computed}.",
            )


def _same(logged: Any, computed: Any) -> bool:
    if isinstance(computed, bool | str | None) or isinstance(logged, bool | str | None):
        # LoadGen logs 0 for an estimate that too few queries give.
        return bool(logged == computed) or (computed is None and logged == 0)
    if not isinstance(logged, int | float):
        return False
    return math.isclose(logged, computed, rel_tol=LOGGED_DIGITS if isinstance(computed, float) else 0.0)


def check_times(test: LoadGenTest) -> Iterator[CheckResult]:
    """Duration of the trace against the wall clock of the detail log."""
    assert test.queries is not None
    begin, end = (_wall_clock(test.values.get(key)) for key in ("power_begin", "power_end"))
    if begin is None or end is None:
        return
    lasted = float((test.queries.scheduled_ns + test.queries.latency_ns).max()) / 1e9
    wall = (end - begin).total_seconds()
    if abs(wall - lasted) > CLOCK_SLACK_S + 0.01 * wall:
        trace_s, wall_s = significant(lasted, wall)
        yield (
            "times",
            BREAKS,
            f"The trace lasts {trace_s} s; between power_begin and power_end lie {wall_s} s.",
        )


def _wall_clock(text: Any) -> datetime | None:
    try:
        return datetime.strptime(str(text), "%m-%d-%Y %H:%M:%S.%f")
    except ValueError:
        return None


def check_answers(test: LoadGenTest) -> Iterator[CheckResult]:
    """Accuracy mode: one answer for every sample."""
    if test.answers is None:
        yield "answers", BREAKS, "The accuracy test has no mlperf_log_accuracy.json."
        return
    total = test.accuracy_samples
    answered = np.unique(test.answers.index)
    whole = total
    if test.scenario == "MultiStream":  # LoadGen fills the last query with samples that it asks for twice
        size = max(1, int(test.settings["effective_samples_per_query"]))
        whole = -(-total // size) * size
    if len(answered) != total or len(test.answers.index) != whole or (total and answered[-1] != total - 1):
        yield (
            "answers",
            REVIEW if test.answers.truncated else BREAKS,
            f"The accuracy test has {len(test.answers.index)} answers to {len(answered)} samples; one to each of "
            f"{total}{' (its log is truncated, as a submission may)' if test.answers.truncated else ''}.",
        )
    if len(set(zip(test.answers.index.tolist(), test.answers.data, strict=True))) != len(answered):
        yield "answers", BREAKS, "The accuracy test has different answers to the same sample."
    empty = sum(not data for data in test.answers.data)
    if empty:
        yield "answers", BREAKS, f"{empty} of {len(test.answers.data)} answers are empty."


def check_percentile(test: LoadGenTest, rules: Round | None, percentile: float) -> Iterator[CheckResult]:
    """Percentile that the test was given, against the one that it is judged at."""
    if test.mode == PERFORMANCE and test.percentile < percentile:
        yield (
            "rules",
            REVIEW if rules is None else BREAKS,
            f"target_latency_percentile is {test.percentile:g}; at least {percentile:g} in {test.scenario}.",
        )


def check_rules(test: LoadGenTest, rules: Round, model: str | None) -> Iterator[CheckResult]:
    """Settings against the rules of a round."""
    settings = test.settings
    for key in SEEDS:
        found = settings.get(f"effective_{key}")
        if found != rules.seeds[key] and test.mode == PERFORMANCE:
            yield "seeds", BREAKS, f"{key} is {found}; allowed: {rules.seeds[key]}."
    configured = int(settings["effective_min_duration_ms"])
    if test.mode == PERFORMANCE and configured < rules.min_duration_ms:
        yield "rules", BREAKS, f"min_duration_ms is {configured}; at least {rules.min_duration_ms}."
    queries, due = int(settings["effective_min_query_count"]), rules.min_queries.get(test.scenario, 0)
    if test.mode == PERFORMANCE and queries < due:
        yield "rules", BREAKS, f"min_query_count is {queries}; at least {due} in {test.scenario}."
    if model is None:
        yield "model", REVIEW, "No folder names a model of the round, so its bounds are not checked."
        return
    limits = rules.models[model]
    if test.mode == ALL_SAMPLES:
        samples = limits.accuracy_samples or limits.samples
        if test.accuracy_samples != samples:
            yield (
                "rules",
                BREAKS,
                f"The accuracy test is of {test.accuracy_samples} samples; {model} has {samples}.",
            )
        return
    loaded = int(settings["effective_performance_sample_count"])
    if loaded < limits.loaded_samples:
        yield (
            "rules",
            BREAKS,
            f"performance_sample_count is {loaded}; at least {limits.loaded_samples} for {model}.",
        )
    bound = limits.server_latency_ns
    if (
        test.scenario == "Server"
        and bound is not None
        and int(settings["effective_target_latency_ns"]) > bound
    ):
        stated = int(settings["effective_target_latency_ns"])
        yield "rules", BREAKS, f"target_latency_ns is {stated}; at most {bound} for {model}."
    least = limits.offline_samples
    if (
        test.scenario == "Offline"
        and least is not None
        and int(settings["effective_samples_per_query"]) < least
    ):
        samples = int(settings["effective_samples_per_query"])
        yield "rules", BREAKS, f"samples_per_query is {samples}; at least {least} for {model}."
