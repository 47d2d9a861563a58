"""One LoadGen test of a task's answers (package `mlcommons-loadgen`): every setting is explicit, all logs are kept."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import mlperf_loadgen

from train_bench.errors import LaunchError
from train_bench.serving.batching import Batcher, Batching, InlineBatcher, QueueBatcher
from train_bench.serving.held_signals import held_signals
from train_bench.serving.timer_slack import exact_timers

NO_AUDIT = "no audit.config"
"""Name of an audit file that is nowhere: one in the working folder would change the settings of a test."""

AUDIT_SEED = 720381539243781796
"""Seed of TEST01's choice of logged answers."""

SAME_INDEX = 3
"""Sample that TEST04 asks for again and again."""

STREAMS = ("SingleStream", "MultiStream")
"""Scenarios whose next query comes when the one before has its answers."""

SAMPLES_PER_QUERY = 8
"""Samples of a MultiStream query."""


class Samples(Protocol):
    """Part of a task that a test needs."""

    def served_samples(self) -> int: ...
    def load_samples(self, indices: Sequence[int]) -> None: ...
    def unload_samples(self, indices: Sequence[int]) -> None: ...
    def answer(self, indices: Sequence[int]) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of a test.

    rate         expected samples a second (Offline), arriving ones (Server), expected queries (streams)
    latency_ns   bound of the Server scenario
    log_answers  answers that are logged in performance mode (TEST01)
    same         ask for one sample again and again (TEST04)
    """

    scenario: str
    mode: str
    rate: float
    min_duration_ms: int
    min_queries: int
    seeds: Mapping[str, int]
    latency_ns: int | None = None
    log_answers: int = 0
    same: bool = False


def run_test(folder: Path, load: Load, samples: Samples, batching: Batching) -> float:
    """Carry out a test; its logs are in `folder` then. Returns the processor time of an answer, in seconds. Raises what
    the task has raised, and `LaunchError` where the process was asked to end meanwhile: the test first comes to its
    end, with empty answers."""
    folder.mkdir(parents=True)
    kind = InlineBatcher if load.scenario in STREAMS else QueueBatcher
    batcher = kind(batching, samples.answer, _complete)
    with held_signals(batcher.fail):
        _carry_out(folder, load, samples, batcher)
    if isinstance(batcher.failure, Exception):
        raise batcher.failure
    if batcher.failure is not None:
        raise LaunchError(
            f"The test {folder} was ended by {type(batcher.failure).__name__}, so its answers are not those of the "
            "task; serve again."
        ) from batcher.failure
    return batcher.processor_seconds / max(1, batcher.answered)


def _carry_out(folder: Path, load: Load, samples: Samples, batcher: Batcher) -> None:
    def guarded(act: Callable[[Sequence[int]], None]) -> Callable[[Sequence[int]], None]:
        def call(indices: Sequence[int]) -> None:
            try:
                act(indices)
            except BaseException as error:
                batcher.fail(error)

        return call

    count = samples.served_samples()
    library = mlperf_loadgen.ConstructQSL(
        count, count, guarded(samples.load_samples), guarded(samples.unload_samples)
    )
    system = mlperf_loadgen.ConstructSUT(guarded(batcher.issue), lambda: None)
    batcher.start()
    try:
        with exact_timers():
            mlperf_loadgen.StartTestWithLogSettings(system, library, _settings(load), _logs(folder), NO_AUDIT)
    finally:
        batcher.close()
        mlperf_loadgen.DestroySUT(system)
        mlperf_loadgen.DestroyQSL(library)


def _complete(ids: Sequence[int], answers: Sequence[bytes]) -> None:
    """Hand answers to LoadGen, which copies them before it returns."""
    together = array("B", b"".join(answers))
    place = together.buffer_info()[0]
    responses = []
    for number, answer in zip(ids, answers, strict=True):
        responses.append(mlperf_loadgen.QuerySampleResponse(number, place, len(answer)))
        place += len(answer)
    mlperf_loadgen.QuerySamplesComplete(responses)


def _settings(load: Load) -> mlperf_loadgen.TestSettings:
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, load.scenario)
    settings.mode = getattr(mlperf_loadgen.TestMode, load.mode)
    settings.min_duration_ms, settings.min_query_count = load.min_duration_ms, load.min_queries
    for name, seed in load.seeds.items():
        setattr(settings, name, seed)
    if load.scenario == "Offline":
        settings.offline_expected_qps = load.rate
    elif load.scenario == "Server":
        settings.server_target_qps = load.rate
        settings.server_target_latency_ns = load.latency_ns
    elif load.scenario == "SingleStream":
        settings.single_stream_expected_latency_ns = int(1e9 / load.rate)
    else:
        settings.multi_stream_expected_latency_ns = int(1e9 / load.rate)
        settings.multi_stream_samples_per_query = SAMPLES_PER_QUERY
    if load.log_answers:
        settings.accuracy_log_rng_seed = AUDIT_SEED
        settings.accuracy_log_sampling_target = load.log_answers
    if load.same:
        settings.performance_issue_same, settings.performance_issue_same_index = True, SAME_INDEX
    return settings


def _logs(folder: Path) -> mlperf_loadgen.LogSettings:
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = str(folder), False
    logs = mlperf_loadgen.LogSettings()
    logs.log_output, logs.enable_trace = output, True
    return logs
