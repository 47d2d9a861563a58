"""Replays published logs: how well is the end of a run known after three evaluations?

    python bench/forecast_live.py CORPUS_DIR [--evaluations 3]

Every run of every folder of results below CORPUS_DIR that reached its target is forecast after so many of its
evaluations, once as the first run of its campaign and once after the runs that were finished when it began. The error
is |forecast / minutes - 1| with the median of the forecast; `80 %` is how often the 80 % interval holds the minutes.
`seen` is the share of the run that had passed. The baseline takes the mean of the reference, not rounded up to an
evaluation, and the pace from the first of these evaluations to the last; `published` is its median error over some
12,000 published runs of all rounds. The last line is over all runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train_bench.errors import TrainBenchError
from train_bench.forecast.live import Campaign, Interval, Seen
from train_bench.forecast.samples import expect
from train_bench.judge import locate, log, rcp
from train_bench.judge.entry import common_batch_size
from train_bench.judge.record import RunRecord, make_record, number_of
from train_bench.plan import discover
from train_bench.rules import ruleset

PUBLISHED = {
    "bert": 7.1,
    "dlrm": 0.3,
    "dlrm_dcnv2": 2.1,
    "flux1": 3.0,
    "gpt3": 2.5,
    "llama2_70b_lora": 4.2,
    "llama31_8b": 7.3,
    "maskrcnn": 1.2,
    "resnet": 0.4,
    "retinanet": 0.1,
    "rgat": 3.7,
    "rnnt": 3.2,
    "ssd": 0.8,
    "unet3d": 18.6,
}
"""In per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One forecast: the minutes of the run as they came and as they were expected."""

    minutes: float
    seen: float
    expected: Interval
    baseline: float

    @property
    def error(self) -> float:
        return abs(self.expected.expected / self.minutes - 1)

    @property
    def inside(self) -> bool:
        return self.expected.low - 1e-6 <= self.minutes <= self.expected.high + 1e-6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS_DIR")
    parser.add_argument("--evaluations", type=int, default=3)
    options = parser.parse_args()
    alone: dict[str, list[Replayed]] = defaultdict(list)
    after_others: dict[str, list[Replayed]] = defaultdict(list)
    began, forecasts = time.perf_counter(), 0
    for location in locate.find(options.corpus, None).locations:
        for benchmark, first, later in replay(location, options.evaluations):
            alone[benchmark].append(first)
            after_others[benchmark].append(later)
            forecasts += 2
    took = (time.perf_counter() - began) / max(1, forecasts)
    print(f"{'':18}{'':6}{'':6}{'as the first run':>28}   {'after the runs before it':>28}")
    print(
        f"{'benchmark':18}{'runs':>6}{'seen':>6}" + 2 * f"{'median':>10}{'p90':>9}{'80 %':>9}   " + "baseline"
    )
    for benchmark in sorted(alone):
        row(benchmark, alone[benchmark], after_others[benchmark])
    every = [one for of in alone.values() for one in of]
    row("all", every, [one for of in after_others.values() for one in of])
    print(f"{1000 * took:.1f} ms for each forecast, reading included", file=sys.stderr)
    return 0


def row(name: str, *columns: list[Replayed]) -> None:
    seen = statistics.median(one.seen for one in columns[0])
    cells = f"{name:16}{len(columns[0]):5}{seen:6.0%}"
    for replayed in columns:
        inside = sum(one.inside for one in replayed) / len(replayed)
        cells += f"{of_errors([one.error for one in replayed])}{inside:7.0%}  "
    published = f"{PUBLISHED[name]:9} %" if name in PUBLISHED else ""
    print(cells + of_errors([abs(one.baseline / one.minutes - 1) for one in columns[0]]) + published)


def of_errors(errors: list[float]) -> str:
    """Median and 90th percentile."""
    return f"{statistics.median(errors):8.1%}{sorted(errors)[int(0.9 * (len(errors) - 1) + 0.5)]:7.1%}"


def replay(location: locate.Location, evaluations: int) -> Iterator[tuple[str, Replayed, Replayed]]:
    """The forecasts of the runs of one folder."""
    rules = None
    read = [log.read(file) for file in sorted(location.files, key=number_of)]
    for name in {event.value for one in read for event in one.events if event.key == "submission_benchmark"}:
        rules = ruleset.load(location.ruleset).benchmark(name)
    if rules is None:
        return
    records: list[RunRecord] = [make_record(one, index=at, rules=rules) for at, one in enumerate(read)]
    batch_size = common_batch_size(records, rules)
    points = rcp.load(rules, discover.rcp_folders())
    try:
        reference = expect(points, rules, batch_size or 0)
    except TrainBenchError as error:
        print(
            f"left out: {location.folder.relative_to(location.folder.parents[4])}: {error}", file=sys.stderr
        )
        return
    campaigns = [Campaign(reference.schedule, rules, points, batch_size or 0) for _ in range(2)]
    mean = reference.mean() + reference.resolution / 2  # as its evaluations have seen it
    of_runs = sorted(zip(records, read, strict=True), key=lambda one: one[0].started_ms or 0)
    for record, one in of_runs:
        whole, early = campaigns[0].seen(), campaigns[0].seen()
        for event in one.events:
            whole.event(event)
            if len(early.positions) < evaluations:
                early.event(event)
        usable = record.status == "success" and len(whole.positions) >= evaluations and early.started_ms
        if usable and record.minutes:
            both = [_forecast(campaign, early) for campaign in campaigns]
            if None not in both:
                seen = (early.times_ms[-1] - early.started_ms) / 60_000 / record.minutes
                baseline = of_the_mean(early, mean)
                first, later = (
                    Replayed(minutes=record.minutes, seen=seen, expected=expected, baseline=baseline)
                    for expected in both
                    if expected
                )
                yield rules.name, first, later
        campaigns[1].finished.append(whole)


def of_the_mean(early: Seen, mean: float) -> float:
    """The baseline, in minutes; at least what has passed."""
    if early.started_ms is None or len(early.positions) < 2:
        return math.nan
    pace = (early.times_ms[-1] - early.times_ms[0]) / (early.positions[-1] - early.positions[0])
    to_come = max(0.0, mean - early.positions[-1]) * pace
    return (early.times_ms[-1] - early.started_ms + to_come) / 60_000


def _forecast(campaign: Campaign, early: Seen) -> Interval | None:
    forecast = campaign.forecast(early.times_ms[-1], early, to_do=0)
    if forecast is None or forecast.run is None or early.started_ms is None:
        return None
    return Interval(*((value - early.started_ms) / 60_000 for value in forecast.run))


if __name__ == "__main__":
    raise SystemExit(main())
