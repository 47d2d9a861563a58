"""Logs of one LoadGen test, read as data: settings and results, errors, the trace of every query, the answers.

`mlperf_log_detail.txt` has `:::MLLOG` lines, `mlperf_log_trace.json` an event a line (which is no valid JSON: names are
quoted twice), `mlperf_log_accuracy.json` an answer a line, `mlperf_log_summary.txt` text for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.core.finite_number import finite_number
from train_bench.errors import LogError
from train_bench.judge.loadgen_folders import DETAIL
from train_bench.logs import log

TRACE = "mlperf_log_trace.json"
ACCURACY, SUMMARY = "mlperf_log_accuracy.json", "mlperf_log_summary.txt"

CHECKED_ACCURACY = "accuracy.txt"
"""Output of the accuracy script in a submission. With the hash of the accuracy log, that one may be truncated."""

NUMBERS = (
    "effective_target_qps",
    "effective_target_latency_ns",
    "effective_target_latency_percentile",
    "effective_min_duration_ms",
    "effective_min_query_count",
    "effective_min_sample_count",
    "effective_samples_per_query",
    "effective_performance_sample_count",
    "qsl_reported_total_count",
)
"""Settings that a judgement needs."""

LARGEST_SETTING = 1e15
"""Bound of the settings and results that are read."""

PERFORMANCE, ALL_SAMPLES = "PerformanceOnly", "AccuracyOnly"

METRICS = {
    "SingleStream": "early_stopping_latency_ss",
    "MultiStream": "early_stopping_latency_ms",
    "Server": "result_completed_samples_per_sec",
    "Offline": "result_samples_per_second",
}
"""Key of the metric of each scenario."""

PERCENTILES = {"SingleStream": 0.9, "MultiStream": 0.99, "Server": 0.99}
"""Percentile of the latencies of a scenario, whether it is the metric or has a bound. Offline has none."""

LARGEST_SUMMARY_BYTES = 2**20
LARGEST_LINE_BYTES = 2**20
"""An answer of an image segmentation is a volume; a line of a trace has 200 bytes."""

NUMBER = rb"(-?\d{1,18})"
SAMPLE = re.compile(
    rb'"name":"Sample",.{0,100}"ph": ?"b",.{0,100}"ts":([0-9.]{1,24}),"args":\{"sample_seq":%b,"query_seq":%b,'
    rb'"sample_idx":%b,"issue_start_ns":%b,"complete_ns":%b' % ((NUMBER,) * 5)
)
SAMPLE_BEGINS = re.compile(rb'"name":"Sample",.{0,100}"ph": ?"b"')
ANSWER = re.compile(rb'\{ "seq_id" : %b, "qsl_idx" : %b, "data" : "([0-9A-Fa-f]*)"' % ((NUMBER,) * 2))
VERDICT = re.compile(r"^Result is : (VALID|INVALID)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Samples of a test in the order in which they were issued, an entry each.

    `scheduled_ns` counts from the first scheduled query, `issued_ns` and `latency_ns` from when the sample was
    scheduled. `malformed` lines of the trace begin a sample and cannot be read.
    """

    query: NDArray[np.int64]
    sample: NDArray[np.int64]
    index: NDArray[np.int64]
    scheduled_ns: NDArray[np.int64]
    issued_ns: NDArray[np.int64]
    latency_ns: NDArray[np.int64]
    malformed: int = 0

    def __len__(self) -> int:
        return len(self.sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers that LoadGen has logged: indices of their samples, and the content as hexadecimal digits. A `truncated`
    log is one whose hash a submission has kept, so that its middle may be left out."""

    index: NDArray[np.int64]
    data: tuple[str, ...]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGenTest:
    """A folder that LoadGen has written. `values` has the last value of each key of the detail log, `settings` those
    of its keys `effective_*`, whose types and ranges are checked, `errors` its lines that are errors, `verdict` the
    word of the summary; None stands for a file that is not there."""

    folder: Path
    values: Mapping[str, Any]
    settings: Mapping[str, Any]
    errors: tuple[str, ...]
    problems: tuple[str, ...]
    verdict: str | None
    queries: Queries | None
    answers: Answers | None

    @property
    def scenario(self) -> str:
        return str(self.values["effective_scenario"])

    @property
    def mode(self) -> str:
        return str(self.values["effective_test_mode"])

    @property
    def accuracy_samples(self) -> int:
        """Samples of an accuracy test: of LoadGen before 6.0, the whole set."""
        return int(
            self.settings.get("effective_accuracy_sample_count", self.values["qsl_reported_total_count"])
        )

    @property
    def logged_value(self) -> float | None:
        """Metric of the scenario as the detail log has it; None where it has no positive one."""
        value = self.values.get(METRICS[self.scenario])
        return float(value) if _is_number(value) and value else None

    @property
    def percentile(self) -> float:
        """Percentile of latencies that the test was given."""
        return float(self.settings["effective_target_latency_percentile"])

    @property
    def strictest_percentile(self) -> float:
        """Percentile without a round that names one: that of the scenario, or a higher one of the log."""
        return max(self.percentile, PERCENTILES.get(self.scenario, 0.0))

    @property
    def token_latencies(self) -> bool:
        """True if the bounds are on the latencies of tokens."""
        return self.values.get("requested_use_token_latencies") is True


def read(folder: Path) -> LoadGenTest:
    """Read a test. Raises `LogError` for a file that cannot be read, and where the detail log has settings that no
    LoadGen writes."""
    try:
        return _read(folder)
    except OSError as error:
        raise LogError(
            f"{error.filename or folder} cannot be read ({error.strerror}); give the folder as LoadGen has written it."
        ) from error


def _read(folder: Path) -> LoadGenTest:
    detail = log.read(folder / DETAIL)
    values = {event.key: event.value for event in detail.events}
    for key, allowed in (
        ("effective_scenario", tuple(METRICS)),
        ("effective_test_mode", (PERFORMANCE, ALL_SAMPLES)),
    ):
        if values.get(key) not in allowed:
            raise LogError(
                f"{folder / DETAIL} has {key} {plain(repr(values.get(key)))[:80]}; known are {', '.join(allowed)}. "
                "Give a folder that LoadGen has written in one of these."
            )
    for key in NUMBERS:
        value = values.get(key)
        if not _is_number(value):
            raise LogError(
                f"{folder / DETAIL} has {key} {plain(repr(value))[:80]}; allowed: a number from 0 to "
                f"{LARGEST_SETTING:g}. Give the log as LoadGen has written it."
            )
    if not _is_number(values.get("effective_accuracy_sample_count", 0)):
        raise LogError(f"{folder / DETAIL} has an effective_accuracy_sample_count that is not a number.")
    if values["effective_target_latency_percentile"] >= 1:
        raise LogError(
            f"{folder / DETAIL} has effective_target_latency_percentile "
            f"{values['effective_target_latency_percentile']}; allowed: below 1."
        )
    return LoadGenTest(
        folder=folder,
        values=values,
        settings={key: value for key, value in values.items() if key.startswith("effective_")},
        errors=tuple(
            plain(str(event.value)) for event in detail.events if event.metadata.get("is_error") is True
        ),
        problems=tuple(f"line {problem.line}: {problem.message}" for problem in detail.problems),
        verdict=_summary_verdict(folder / SUMMARY),
        queries=_queries(folder / TRACE),
        answers=read_answers(folder),
    )


def _is_number(value: Any) -> bool:
    number = finite_number(value, below=LARGEST_SETTING)
    return number is not None and number >= 0


def _summary_verdict(path: Path) -> str | None:
    if not path.is_file():
        return None
    said = VERDICT.findall(files.read_bytes(path, largest=LARGEST_SUMMARY_BYTES).decode(errors="replace"))
    return said[-1] if said else None


def _lines(path: Path) -> Iterator[bytes]:
    with files.opened(path) as file:
        while line := file.readline(LARGEST_LINE_BYTES):
            yield line


def _queries(path: Path) -> Queries | None:
    if not path.is_file():
        return None
    rows: list[tuple[int, ...]] = []
    malformed = 0
    for line in _lines(path):
        if found := SAMPLE.search(line):
            microseconds, *numbers = found.groups()
            scheduled = _nanoseconds(microseconds)
            if scheduled is not None:
                rows.append((scheduled, *map(int, numbers)))
                continue
        malformed += SAMPLE_BEGINS.search(line) is not None
    table = np.array(sorted(rows, key=lambda row: row[1]), dtype=np.int64).reshape(len(rows), 6)
    return Queries(
        sample=table[:, 1],
        query=table[:, 2],
        index=table[:, 3],
        scheduled_ns=table[:, 0] - min((row[0] for row in rows), default=0),
        issued_ns=table[:, 4],
        latency_ns=table[:, 5],
        malformed=malformed,
    )


def _nanoseconds(microseconds: bytes) -> int | None:
    whole, _, part = microseconds.partition(b".")
    if not whole.isdigit() or len(whole) > 15 or (part and not part.isdigit()):
        return None
    return int(whole) * 1000 + int(part[:3].ljust(3, b"0") or b"0")


def read_answers(folder: Path) -> Answers | None:
    """Answers that a test or, of a compliance test, its script has kept in a folder; None if there is no file."""
    path = folder / ACCURACY
    if not path.is_file():
        return None
    found = [match.groups() for line in _lines(path) if (match := ANSWER.search(line))]
    return Answers(
        index=np.array([int(index) for _, index, _ in found], dtype=np.int64),
        data=tuple(data.decode() for _, _, data in found),
        truncated=_is_hashed(path.with_name(CHECKED_ACCURACY)),
    )


def _is_hashed(path: Path) -> bool:
    return path.is_file() and b"hash=" in files.read_bytes(path, largest=LARGEST_SUMMARY_BYTES)
