"""Runs LoadGen tests of a system that answers with the index of the sample: `FOLDER`. Prints nothing."""

import array
import queue
import sys
import threading
import time
from pathlib import Path

import mlperf_loadgen as loadgen

SEEDS = (2085463073848966840, 2747215439041700203, 16159082839903944936)
SAMPLES = 50

RUNS = {
    "SingleStream/performance/run_1": ("SingleStream", 0.001, {"single_stream_expected_latency_ns": 10_000}),
    "MultiStream/performance/run_1": (
        "MultiStream",
        0.0002,
        {"multi_stream_expected_latency_ns": 50_000, "min_query_count": 700},
    ),
    "Server/performance/run_1": (
        "Server",
        0.0,
        {"server_target_qps": 4000, "server_target_latency_ns": 30_000_000_000, "min_duration_ms": 200},
    ),
    "Offline/performance/run_1": ("Offline", 0.15, {"offline_expected_qps": 1000}),
    "Offline/accuracy": ("Offline", 0.0, {"mode": loadgen.TestMode.AccuracyOnly}),
    "Offline/TEST01": (
        "Offline",
        0.15,
        {"offline_expected_qps": 1000, "accuracy_log_probability": 0.5, "accuracy_log_rng_seed": 1},
    ),
    "Offline/TEST04": ("Offline", 0.15, {"offline_expected_qps": 1000, "performance_issue_same": True}),
    "too_few": ("Server", 0.0, {"server_target_qps": 300, "server_target_latency_ns": 30_000_000_000}),
    "too_slow": (
        "Server",
        0.002,
        {"server_target_qps": 4000, "server_target_latency_ns": 100_000, "min_duration_ms": 200},
    ),
    "too_short": ("Offline", 0.0, {"offline_expected_qps": 10}),
}
"""Scenario, seconds that an answer takes, and settings."""


def main() -> None:
    for name, (scenario, seconds, options) in RUNS.items():
        run(Path(sys.argv[1], name), scenario, seconds, options)


def run(folder, scenario, seconds, options):
    folder.mkdir(parents=True)
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, scenario)
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms, settings.min_query_count = 100, 100
    settings.qsl_rng_seed, settings.sample_index_rng_seed, settings.schedule_rng_seed = SEEDS
    for key, value in options.items():
        setattr(settings, key, value)
    output = loadgen.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = str(folder), False
    logs = loadgen.LogSettings()
    logs.log_output, logs.enable_trace = output, True
    issued = queue.Queue()
    worker = threading.Thread(target=answer, args=(issued, seconds))
    worker.start()
    system = loadgen.ConstructSUT(issued.put, lambda: None)
    samples = loadgen.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(system, samples, settings, logs, "no audit.config")
    issued.put(None)
    worker.join()
    loadgen.DestroyQSL(samples)
    loadgen.DestroySUT(system)


def answer(issued, seconds):
    while (query := issued.get()) is not None:
        time.sleep(seconds)
        contents = [array.array("f", [sample.index]) for sample in query]
        loadgen.QuerySamplesComplete(
            [
                loadgen.QuerySampleResponse(sample.id, content.buffer_info()[0], 4)
                for sample, content in zip(query, contents, strict=True)
            ]
        )


if __name__ == "__main__":
    main()
