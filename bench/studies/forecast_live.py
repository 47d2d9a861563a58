"""Accuracy of live forecasts: the end of a run after three evaluations, on replayed published logs.

    python bench/studies/forecast_live.py CORPUS_DIR [--evaluations 3]

Every run of every folder of results below CORPUS_DIR that reached its target is forecast after so many of its
evaluations, once as the first run of its campaign and once after the runs that were finished when it began. The error
is |forecast / minutes - 1| with the median of the forecast; `80 %` is how often the 80 % interval holds the minutes.
`seen` is the share of the run that had passed. The baseline takes the mean of the reference, not rounded up to an
evaluation, and the pace from the first of these evaluations to the last; `published` is its median error over some
12,000 published runs of all rounds. The last line of the table is over all runs.

Below it, the same of campaigns: the minutes of all runs that remain after 1, 2 and 4 of them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train_bench.errors import TrainBenchError
from train_bench.forecast.live import Campaign, Interval, ObservedRun
from train_bench.forecast.samples import Samples, expect
from train_bench.judge import locate, rcp
from train_bench.judge.entry import common_batch_size
from train_bench.logs import log
from train_bench.logs.record import SUCCESS, RunRecord, make_record, number_of
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The runs of one folder in the order of their starts, and what the reference says of them."""

    rules: BenchmarkRules
    points: tuple[rcp.Point, ...]
    batch_size: int
    reference: Samples
    runs: tuple[tuple[RunRecord, log.Log], ...]

    def campaign(self) -> Campaign:
        return Campaign(self.reference.schedule, self.rules, self.points, self.batch_size)

    @property
    def mean(self) -> float:
        """Mean of the reference, as its evaluations have seen it."""
        return self.reference.mean() + self.reference.resolution / 2


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS_DIR")
    parser.add_argument("--evaluations", type=int, default=3)
    options = parser.parse_args()
    alone: dict[str, list[Replayed]] = defaultdict(list)
    after_others: dict[str, list[Replayed]] = defaultdict(list)
    remaining: dict[int, list[Replayed]] = {1: [], 2: [], 4: []}
    for location in locate.find(options.corpus, None).locations:
        entry = entry_of(location)
        if entry is None:
            continue
        for first, later in replay(entry, options.evaluations):
            alone[entry.rules.name].append(first)
            after_others[entry.rules.name].append(later)
        for done, replayed in remaining.items():
            replayed += rest(entry, done)
    headings = f"{'median':>8}{'p90':>7}{'80 %':>7}  "
    print(f"{'':27}{'as the first run':>22}  {'after those before it':>22}  {'baseline':>15}")
    print(
        f"{'benchmark':16}{'runs':>5}{'seen':>6}{headings}{headings}{'median':>8}{'p90':>7}{'published':>11}"
    )
    for benchmark in sorted(alone):
        row(benchmark, alone[benchmark], after_others[benchmark])
    row("all", *([one for of in columns.values() for one in of] for columns in (alone, after_others)))
    for done, replayed in remaining.items():
        inside = sum(one.inside for one in replayed) / len(replayed)
        errors = of_errors([one.error for one in replayed])
        print(f"{len(replayed)} campaigns after {done} run(s){errors}{inside:7.0%}")
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


def entry_of(location: locate.Location) -> Entry | None:
    """None, and a line that says why, where nothing says what the reference needs."""
    read = [log.read(file) for file in sorted(location.files, key=number_of)]
    named = [event.value for one in read for event in one.events if event.key == "submission_benchmark"]
    try:
        rules = ruleset.load(location.ruleset).benchmark(str(named[0] if named else None))
        records = [make_record(one, index=at, rules=rules) for at, one in enumerate(read)]
        batch_size = common_batch_size(records, rules) or 0
        points = rcp.load(rules, discover.rcp_folders())
        reference = expect(points, rules, batch_size)
    except TrainBenchError as error:
        print(f"left out: {location.folder}: {error}", file=sys.stderr)
        return None
    runs = sorted(zip(records, read, strict=True), key=lambda one: one[0].started_ms or 0)
    return Entry(rules=rules, points=points, batch_size=batch_size, reference=reference, runs=tuple(runs))


def replay(entry: Entry, evaluations: int) -> Iterator[tuple[Replayed, Replayed]]:
    """The forecasts of the runs of one folder."""
    fresh, campaign = entry.campaign(), entry.campaign()
    for record, read in entry.runs:
        early, whole = campaign.new_run(), seen_of(campaign, read)
        for event in read.events:
            if len(early.positions) < evaluations:
                early.event(event)
        usable = record.status == SUCCESS and len(whole.positions) >= evaluations
        if usable and record.minutes and early.started_ms is not None:
            passed = (early.times_ms[-1] - early.started_ms) / 60_000
            facts = {
                "minutes": record.minutes,
                "seen": passed / record.minutes,
                "baseline": of_the_mean(early, entry.mean),
            }
            first, later = (of_the_run(known, early) for known in (fresh, campaign))
            if first is not None and later is not None:
                yield Replayed(expected=first, **facts), Replayed(expected=later, **facts)
        campaign.finished.append(whole)


def rest(entry: Entry, done: int) -> Iterator[Replayed]:
    """The minutes of all runs behind the first few, if there are any and something can be expected of them."""
    campaign = entry.campaign()
    campaign.finished = [seen_of(campaign, read) for _, read in entry.runs[:done]]
    minutes = [record.minutes for record, _ in entry.runs[done:] if record.minutes]
    forecast = campaign.forecast(0, None, to_do=len(minutes))
    if forecast is not None:
        expected = Interval(*(end / 60_000 for end in forecast.campaign))
        yield Replayed(minutes=sum(minutes), seen=0.0, expected=expected, baseline=math.nan)


def seen_of(campaign: Campaign, read: log.Log) -> ObservedRun:
    """All of a run."""
    seen = campaign.new_run()
    for event in read.events:
        seen.event(event)
    return seen


def of_the_mean(early: ObservedRun, mean: float) -> float:
    """The baseline, in minutes; at least what has passed."""
    if early.started_ms is None or len(early.positions) < 2:
        return math.nan
    pace = (early.times_ms[-1] - early.times_ms[0]) / (early.positions[-1] - early.positions[0])
    to_come = max(0.0, mean - early.positions[-1]) * pace
    return (early.times_ms[-1] - early.started_ms + to_come) / 60_000


def of_the_run(campaign: Campaign, early: ObservedRun) -> Interval | None:
    forecast = campaign.forecast(early.times_ms[-1], early, to_do=0)
    if forecast is None or forecast.run is None or early.started_ms is None:
        return None
    return Interval(*((value - early.started_ms) / 60_000 for value in forecast.run))


if __name__ == "__main__":
    raise SystemExit(main())
