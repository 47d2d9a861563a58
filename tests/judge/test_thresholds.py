"""Every threshold that was fitted to published logs or measured on honest runs, from both sides: 1 % within it nothing
is asked, 1 % beyond it something is. No published log is needed, and the numbers are spelled here and not imported, so
that one that is moved is noticed wherever the tests run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.judge.campaigns import FULL, LOGS, MINI
from tests.judge.checks.test_physics import CPU, ours, times_the_peak
from tests.judge.checks.test_physics import asked as questions_of_physics
from tests.judge.published.test_power_review import node, questions, write
from train_bench.judge import patterns
from train_bench.judge.checks import (
    against_plan,
    history,
    observed,
    plausible,
    ranks,
    samples,
    unverifiable,
    witnesses,
)
from train_bench.judge.checks.case import LogCase, ProgramFacts
from train_bench.judge.checks.review import _outside
from train_bench.judge.compliance import judge_run
from train_bench.judge.finding import BREAKS
from train_bench.judge.published import peers, round_review
from train_bench.judge.published.published_entries import Entry
from train_bench.logs import record as records
from train_bench.logs.record import read_record
from train_bench.rules import ruleset

GOOD, GOOD_LOG = read_record(LOGS / "good.txt", MINI)
RESNET = ruleset.load("training-1.1.0").benchmark("resnet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A value is asked about, by `is_asked(folder, value)`, beyond `bound`: above it, or `below` it."""

    bound: float
    is_asked: Callable[[Path, float], bool]
    below: bool = False


def events(*pairs: tuple[str, Any]) -> Any:
    """The events of a log that has these keys and values alone."""
    lines = [
        SimpleNamespace(key=key, value=value, line=at, metadata={}) for at, (key, value) in enumerate(pairs)
    ]
    return SimpleNamespace(
        of=lambda *keys: [line for line in lines if line.key in keys],
        first=lambda key: next((line for line in lines if line.key == key), None),
        keys={line.key for line in lines},
    )


def case(record: Any = GOOD, log: Any = GOOD_LOG, rules: Any = MINI) -> LogCase:
    return LogCase(record=record, log=log, rules=rules, failures=(), as_logged=(record, log))


def samples_of_an_epoch(_: Path, ratio: float) -> bool:
    """The log has this multiple of the samples that the data of the benchmark have."""
    (epochs,) = {GOOD.convergence}
    logged = replace(GOOD, samples=ratio * epochs * 1_281_167)
    return any(True for _ in plausible._samples_of_an_epoch(logged, RESNET))


def stated_speed(_: Path, ratio: float) -> bool:
    """The times of the log give this multiple of the samples per second that its lines state."""
    log = SimpleNamespace(events=events(("tracked_stats", {"throughput": GOOD.samples_per_second / ratio})))
    return any(True for _ in plausible._stated_speed(case(log=log)))


def physics(folder: Path, ratio: float) -> bool:
    """The campaign does this multiple of the FLOP a second that its machine can."""
    times_the_peak(ours(folder), CPU, ratio)
    return bool(questions_of_physics(folder))


def entry(minutes: float, submitter: str = "ours", **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "round": "v4.0",
        "submitter": submitter,
        "system": "box",
        "benchmark": "resnet",
        "division": "closed",
        "accelerators": 8,
        "accelerator": "H100",
        "minutes": minutes,
        "samples_to_target": 1e6,
        "runs": 5,
    }
    return Entry(**values | changes)


def time_of_peers(_: Path, ratio: float, *, count: int = 4) -> bool:
    """The entry took this multiple of the minutes of its peers."""
    found = peers.find_peers(entry(10 * ratio), [entry(10.0, name) for name in "abcdefgh"[:count]])
    assert found is not None
    return found.question is not None


def speed_of_accelerators(folder: Path, ratio: float) -> bool:
    """An accelerator takes this multiple of the samples per second of the fastest published one."""
    return peers.implausible_speed(folder, entry(1.0), ratio * 1e6 / 600, [entry(10.0, "a")]) is not None


def minutes_of_rounds(folder: Path, ratio: float) -> bool:
    """A system took this multiple of the minutes that it took in the round before, and a setting changed."""

    def judged(minutes: float, batch_size: int) -> Any:
        return SimpleNamespace(
            score=SimpleNamespace(olympic_minutes=minutes),
            summaries=[SimpleNamespace(values={"global_batch_size": batch_size})],
            location=SimpleNamespace(ruleset="training-4.0.0", folder=folder),
        )

    return any(True for _ in round_review._changed(judged(10.0, 1), judged(10.0 * ratio, 2)))


def run_of_seconds(folder: Path, seconds: float) -> bool:
    """A run is short: all its times since `run_start`, in the proportion of the good log's."""
    lines = [
        json.loads(line.partition(":::MLLOG ")[2]) for line in (LOGS / "good.txt").read_text().splitlines()
    ]
    times = {line["key"]: line["time_ms"] for line in lines if line["key"] in ("run_start", "run_stop")}
    began, factor = times["run_start"], seconds * 1000 / (times["run_stop"] - times["run_start"])
    for line in lines:
        line["time_ms"] = began + round(max(0, line["time_ms"] - began) * factor)
    (folder / "result_0.txt").write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    record, log = read_record(folder / "result_0.txt", MINI)
    return "short" in {one.check for one in judge_run(record, log, FULL, world_size=2).findings}


def power(folder: Path, value: float, *, kind: str, lines: Callable[[Any, float], Any]) -> bool:
    """The lines of a power log that `value` makes of the good run's raise a question of this kind."""
    (folder / "result_0.txt").write_text((LOGS / "good.txt").read_text())
    record = replace(read_record(folder / "result_0.txt", MINI)[0], minutes=1.0)
    write(record, lines(record, value))
    return kind in questions(record)


def with_times(record: Any, change: Callable[[int, int], float]) -> Any:
    """An honest power log with other times of its readings, by their number and their time since the first."""
    lines = node(record)
    first = lines[2][2]
    readings = [
        (key, value, round(first + change(at, time - first)))
        for at, (key, value, time) in enumerate(lines[2:-1])
    ]
    return [*lines[:2], *readings, ("power_measurement_stop", None, max(readings[-1][2], lines[-1][2]))]


def common_samples(_: Path, share: float, *, whole: bool = True) -> bool:
    """Training and evaluation data have this share of the evaluation set in common; else, of sets of which next to
    nothing was compared, this number."""
    size, number = 100_000, share * 100_000 if whole else share
    compared = size if whole else 1
    value = {
        "train": {"samples": size, "left_out": 0, "compared": compared},
        "evaluation": {"samples": size, "left_out": 0, "compared": compared},
        "files_in_common": 0,
        "samples_in_common": round(number),
    }
    of_samples = replace(GOOD, train_samples=None)
    return any(True for _ in samples._data(of_samples, MINI, value, {}))


def outlier(_: Path, ratio: float) -> bool:
    """A run is this many times as fast as the median run."""
    fast = replace(GOOD, samples_per_second=100 * ratio)
    return any(True for _ in against_plan._outlier(fast, 100.0, MINI))


def ranks_clock(_: Path, slack: float, *, seconds: float, share: float) -> bool:
    """The ranks measured this many seconds, and this share of the run, more than its log says."""
    record = replace(GOOD, minutes=seconds / 60, processor_lost=0.0)
    log = SimpleNamespace(events=events(("processor_wait", {"seconds": seconds * (1 + share) + slack})))
    return any(True for _ in witnesses.check_rank_clock(case(record, log)))


def share_of_ranks_clock(folder: Path, share: float) -> bool:
    return ranks_clock(folder, 1.0, seconds=1e6, share=share)


def stated_loss(_: Path, share: float) -> bool:
    """A line states another loss than its counters give, by this share."""
    counters = {"ran": 50.0, "waited": 50.0, "others": 50.0, "steal": 0.0, "throttled": 0.0}
    record = replace(GOOD, minutes=1.0)
    log = events(("processor_wait", {"seconds": 60.0, "lost": 0.25 + share, **counters}))
    return any(True for _ in witnesses.check_rank_clock(case(record, SimpleNamespace(events=log))))


def parents_clock(_: Path, slack: float) -> bool:
    """The launching process measured this many seconds more than 105 % of what the log says."""
    record = replace(GOOD, minutes=1.0, processor_lost=0.0, index=0)
    attempt = {"run": 0, "clock_seconds": 63.0 + slack}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witnesses, "attempts_at", lambda location, index: [attempt])
        entry_case = SimpleNamespace(location=None, rules=MINI)
        return any(True for _ in witnesses.check_parent_clock(entry_case, record))  # type: ignore[arg-type]


def speeds_of_runs(_: Path, ratio: float) -> bool:
    """The fastest run was this many times as fast as the slowest, and no process took anything."""
    speeds = enumerate((100.0, 100.0, 100 * ratio))
    runs = [replace(GOOD, index=at, processor_lost=0.0, samples_per_second=speed) for at, speed in speeds]
    return ranks.disturbance(runs, runs) is not None


def lost_share(_: Path, share: float) -> bool:
    """Other processes took this share of the demand, by the score and by the log."""
    lost = replace(GOOD, processor_lost=share)
    log = SimpleNamespace(events=events(("processor_wait", {"lost": share, "seconds": 60.0})))
    found = any(True for _ in ranks._disturbed(lost, log, MINI, planned=True))  # type: ignore[arg-type]
    assert found is (ranks.disturbance([lost], [lost]) is not None)
    return found


def next_to_none(
    _: Path,
    value: float,
    *,
    used: Callable[[float], float],
    seconds: Callable[[float], float] = lambda value: 100.0,
    steps: float = 1e6,
    waited: Callable[[float], float] = lambda value: 0.0,
    accelerators: int = 1,
    opened: int = 1,
) -> bool:
    """A program that used next to no processor time, by `value`."""
    seen = SimpleNamespace(clock_processor_seconds=used(value), accelerators=accelerators, opened=opened)
    program = ProgramFacts(ran=None, waited=waited(value))
    record = replace(
        GOOD, minutes=seconds(value) / 60, samples=steps * 10, global_batch_size=10, processor_lost=0.0
    )
    return observed._next_to_none(seen, program, record) is not None  # type: ignore[arg-type]


def claimed(folder: Path, value: float, *, total: float, ran: Callable[[float], float]) -> bool:
    """A log claims more processor time than all processes had."""
    seen = SimpleNamespace(processor_seconds=total)
    claims = observed._claimed(seen, ProgramFacts(ran=ran(value)), GOOD, SimpleNamespace(folder=folder))  # type: ignore
    return any(True for _ in claims)


def unseen_clock(_: Path, slack: float, *, seconds: float = 60.0, share: float = 0.05) -> bool:
    """The launching process saw the lines this many seconds, and this share of the run, further apart than they are."""
    record = replace(GOOD, minutes=seconds / 60)
    seen = SimpleNamespace(clock_seconds=seconds * (1 + share) + slack)
    return not observed.saw_the_clock(seen, record)  # type: ignore[arg-type]


def longer_than_attempt(_: Path, slack: float, *, seconds: int = 60, share: float = 0.05) -> bool:
    """The log ran this many seconds, and this share of its attempt, longer than that."""
    window = seconds * (1 + share) + slack
    return _asked_of_attempt(0.0, window, 0, seconds, "its times are wrong")


def before_attempt(_: Path, ms: float) -> bool:
    """The log began so long before its attempt."""
    return _asked_of_attempt(-ms / 1000, 60.0, 0, 3600, "before its attempt began")


def after_attempt(_: Path, ms: float) -> bool:
    """The log ended so long after its attempt."""
    return _asked_of_attempt(60 + ms / 1000, 10.0, 0, 70, "after its attempt had ended")


def _asked_of_attempt(began: float, seconds: float, started: int, ended: int, what: str) -> bool:
    """`what` is asked of a log from `began` on, in an attempt, all in seconds."""
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    record = replace(GOOD, started_ms=epoch.timestamp() * 1000 + began * 1000, minutes=seconds / 60)
    attempt = {
        name: (epoch + timedelta(seconds=at)).isoformat()
        for name, at in (("started", started), ("ended", ended))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "attempts_at", lambda location, index: [attempt])
        entry_case = SimpleNamespace(location=None, rules=MINI)
        found = history.check_attempt_times(entry_case, record)  # type: ignore[arg-type]
        return any(what in one.message for one in found)


def clocks_of_processes(_: Path, ms: float) -> bool:
    """In a log of several processes a block begins so long before `run_start`, which then breaks a rule."""
    of_log = events(("block_start", None))
    (line,) = of_log.of("block_start")
    line.time_ms = GOOD.started_ms - ms
    log = SimpleNamespace(events=of_log)
    (found,) = _outside(GOOD, log, RESNET)  # type: ignore[arg-type]
    return found.grade == BREAKS


def delay(_: Path, delay_ms: float) -> bool:
    """A call was sent so long before it arrived."""
    log = SimpleNamespace(events=events(("largest_delay_ms", delay_ms)))
    return any(
        one.check == "delay"
        for one in unverifiable.check_program_log(replace(case(log=log), of_command=True))
    )


def lost_is_known(_: Path, seconds: float) -> bool:
    """A run is long enough for its share of lost processor time."""
    event = SimpleNamespace(value={"seconds": seconds, "lost": 0.5})
    return records._processor_lost(event) == 0.5  # type: ignore[arg-type]


def copies_by_durations(_: Path, seconds: float) -> bool:
    """A run is long enough for its durations to know a copy of it that was moved in time."""
    run = replace(GOOD, minutes=seconds / 60, started_ms=1_000_000)
    times = [GOOD.evaluations[0]._replace(time_ms=1_000_000 + at) for at in (1001, 2002)]
    run = replace(run, evaluations=tuple(times))
    moved = replace(
        run,
        started_ms=2_000_000,
        evaluations=tuple(one._replace(time_ms=one.time_ms + 1_000_000) for one in times),
    )
    return run.times_digest == moved.times_digest


PATTERN, OFF_PATTERN = np.array([0.0, 6, -5, -8, 3, 6, -3, 1]), np.array([-1.0, 0, 0, 0, 2, -1, 0, 0])
"""Deviations of a run, whose median is 4.5 from their median, and some at right angles to them and to a constant."""

LINE, OFF_LINE = np.array([4.0, 1, 19, 9, 13, 15]), np.array([0.0, 0, -2, -2, 2, 2])
"""Qualities of a run, whose second differences are 17.5 in the median, and some at right angles likewise."""


def with_intervals(intervals: Any) -> Any:
    """The good run, with evaluations after each epoch at these intervals (ms)."""
    times = np.cumsum([0, *intervals])
    first = GOOD.evaluations[0]
    evaluations = [
        first._replace(position=float(at), time_ms=round(time)) for at, time in enumerate(times, 1)
    ]
    return replace(GOOD, evaluations=tuple(evaluations))


def with_qualities(values: Any) -> Any:
    """The good run, with these qualities."""
    first = GOOD.evaluations[0]
    return replace(GOOD, evaluations=tuple(first._replace(value=float(value)) for value in values))


def off_by(share: float, size: float, direction: Any) -> Any:
    """`direction` with the root mean square `share` times `size`."""
    return share * size * direction / np.sqrt((direction**2).mean())


def pattern_of_another(_: Path, share: float) -> bool:
    """The pattern of a run is that of another but for this share of its spread."""
    shaken = PATTERN + off_by(share, 4.5, OFF_PATTERN)
    runs = [with_intervals(1_000_003 + 1e4 * deviations) for deviations in (PATTERN, shaken)]
    return bool(patterns.time_copies(runs))


def qualities_on_a_line(_: Path, share: float) -> bool:
    """The qualities of a run lie on a line with those of another but for this share of their roughness."""
    shaken = 0.1 + 0.5 * (LINE + off_by(share, 17.5, OFF_LINE))
    return patterns.same_qualities(with_qualities(LINE), with_qualities(shaken))


def intervals_that_tell(count: int) -> bool:
    """So many intervals know a copy."""
    run = with_intervals(1_000_003 + 1e4 * PATTERN[:count])
    return bool(patterns.time_copies([run, run]))


def spread_that_tells(spread: int) -> bool:
    """Intervals that spread so many milliseconds know a copy."""
    run = with_intervals(1_000_003 + spread * np.array([-1, 1, 1, -1, 1, -1, 0]))
    return bool(patterns.time_copies([run, run]))


def qualities_that_tell(count: int) -> bool:
    """So many qualities know a copy."""
    return patterns.same_qualities(with_qualities(LINE[:count]), with_qualities(1 + LINE[:count]))


THRESHOLDS = {
    "plausible.NEAR, more": Threshold(bound=1.15, is_asked=samples_of_an_epoch),
    "plausible.NEAR, fewer": Threshold(bound=1 / 1.15, is_asked=samples_of_an_epoch, below=True),
    "plausible.MOST_STATED": Threshold(bound=1.15, is_asked=stated_speed),
    "physics.SLACK": Threshold(bound=1.5, is_asked=physics),
    "peers.MUCH_SLOWER": Threshold(bound=1.3, is_asked=time_of_peers),
    "peers.MUCH_FASTER": Threshold(bound=0.5, is_asked=time_of_peers, below=True),
    "peers.BEYOND_THE_BEST": Threshold(bound=10.0, is_asked=speed_of_accelerators),
    "round_review.OTHER_MINUTES, more": Threshold(bound=1.1, is_asked=minutes_of_rounds),
    "round_review.OTHER_MINUTES, less": Threshold(bound=1 / 1.1, is_asked=minutes_of_rounds, below=True),
    "review.SHORTEST_MINUTES": Threshold(bound=1.0, is_asked=run_of_seconds, below=True),
    "power_review.LEAST_WATTS": Threshold(
        bound=20.0,
        is_asked=partial(
            power,
            kind="power_unit",
            lines=lambda record, value: node(record, watts=lambda at: value + (-1) ** at),
        ),
        below=True,
    ),
    "power_review.MOST_WATTS": Threshold(
        bound=1e6,
        is_asked=partial(
            power, kind="power_unit", lines=lambda record, value: node(record, changed={5: value})
        ),
    ),
    "power_review.LEAST_EFFICIENCY": Threshold(
        bound=0.5,
        is_asked=partial(
            power, kind="power_efficiency", lines=lambda record, value: node(record, efficiency=value)
        ),
        below=True,
    ),
    "power_review.SLOWEST_RATE_S": Threshold(
        bound=1.05,
        is_asked=partial(
            power,
            kind="power_rate",
            lines=lambda record, value: with_times(record, lambda at, since: 1000 * value * at),
        ),
    ),
    "power_review.LONGEST_GAP_S": Threshold(
        bound=3.0,
        is_asked=partial(
            power,
            kind="power_gap",
            lines=lambda record, value: with_times(
                record, lambda at, since: since + (1000 * (value - 1) if at > 30 else 0)
            ),
        ),
    ),
    "samples.COMMON_BOUND": Threshold(bound=0.02, is_asked=common_samples),
    "against_plan.OUTLIER, faster": Threshold(bound=3.0, is_asked=outlier),
    "against_plan.OUTLIER, slower": Threshold(bound=1 / 3, is_asked=outlier, below=True),
    "witnesses.RANKS_SECONDS": Threshold(bound=1.0, is_asked=partial(ranks_clock, seconds=1.0, share=0.05)),
    "witnesses.SHARE": Threshold(bound=0.05, is_asked=share_of_ranks_clock),
    "witnesses.PARENT_SECONDS": Threshold(bound=2.5, is_asked=parents_clock),
    "witnesses.STATED": Threshold(bound=0.02, is_asked=stated_loss),
    "ranks.SPEED_BOUND": Threshold(bound=1.5, is_asked=speeds_of_runs),
    "ranks.NO_DISTURBANCE": Threshold(bound=100.0, is_asked=speeds_of_runs, below=True),
    "ranks.LOST_BOUND": Threshold(bound=0.05, is_asked=lost_share),
    "observed.STEP_SECONDS": Threshold(
        bound=5e-5, is_asked=partial(next_to_none, used=lambda value: value * 1e5, steps=1e5), below=True
    ),
    "observed.WANTED_SHARE": Threshold(
        bound=0.3,
        is_asked=partial(next_to_none, used=lambda value: 1.0, waited=lambda value: 100 * value - 1),
        below=True,
    ),
    "observed.SMALLEST_STEP_SECONDS": Threshold(
        bound=2.5e-5,
        is_asked=partial(next_to_none, used=lambda value: value * 1e6, waited=lambda value: 90.0, opened=0),
        below=True,
    ),
    "observed.BUSY_SHARE": Threshold(
        bound=0.02,
        is_asked=partial(next_to_none, used=lambda value: 100 * value, steps=1, accelerators=0),
        below=True,
    ),
    "observed.SHORTEST_SECONDS": Threshold(
        bound=1.0,
        is_asked=partial(
            next_to_none, used=lambda value: 0.01, seconds=lambda value: value, steps=1, accelerators=0
        ),
    ),
    "observed.COUNTED, share": Threshold(
        bound=0.1, is_asked=partial(claimed, total=1e6, ran=lambda value: 1e6 * (1 + value) + 0.5)
    ),
    "observed.COUNTED, seconds": Threshold(
        bound=0.5, is_asked=partial(claimed, total=1.0, ran=lambda value: 1.1 + value)
    ),
    "observed.SECONDS": Threshold(bound=2.5, is_asked=unseen_clock),
    "observed.SHARE": Threshold(
        bound=0.05, is_asked=lambda folder, share: unseen_clock(folder, 2.5, seconds=1e6, share=share)
    ),
    "history.SECONDS": Threshold(bound=5.0, is_asked=longer_than_attempt),
    "history.SHARE": Threshold(
        bound=0.05,
        is_asked=lambda folder, share: longer_than_attempt(folder, 5.0, seconds=1_000_000, share=share),
    ),
    "history.CLOCKS_MS, before": Threshold(bound=60_000, is_asked=before_attempt),
    "history.CLOCKS_MS, after": Threshold(bound=60_000, is_asked=after_attempt),
    "clock.APART_MS": Threshold(bound=1000, is_asked=clocks_of_processes),
    "unverifiable.DELAY_BOUND_MS": Threshold(bound=100.0, is_asked=delay),
    "record.TOO_SHORT_TO_TELL": Threshold(bound=1.0, is_asked=lost_is_known),
    "record.TELLING_SECONDS": Threshold(bound=10.0, is_asked=copies_by_durations),
    "patterns.SAME_PATTERN": Threshold(bound=0.1, is_asked=pattern_of_another, below=True),
    "patterns.SAME_QUALITIES": Threshold(bound=1e-4, is_asked=qualities_on_a_line, below=True),
}


@pytest.mark.parametrize("beyond", [False, True], ids=["within", "beyond"])
@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_lies_between_values_one_per_cent_to_either_side(
    tmp_path: Path, name: str, beyond: bool
) -> None:
    threshold = THRESHOLDS[name]
    factor = 0.99 if beyond is threshold.below else 1.01
    assert threshold.is_asked(tmp_path, threshold.bound * factor) is beyond


@pytest.mark.parametrize(
    ("count", "is_asked"),
    [
        ("peers.LEAST_PEERS", lambda folder, peers: time_of_peers(folder, 2.0, count=peers)),
        ("patterns.FEWEST_INTERVALS", lambda folder, count: intervals_that_tell(count)),
        ("patterns.LEAST_DEVIATION", lambda folder, spread: spread_that_tells(spread)),
        ("patterns.FEWEST_QUALITIES", lambda folder, count: qualities_that_tell(count)),
        ("samples.BY_CHANCE", lambda folder, common: common_samples(folder, common, whole=False)),
        (
            "power_review.CONSTANT",
            partial(
                power,
                kind="power_constant",
                lines=lambda record, count: [
                    *node(record, watts=lambda at: 300)[: count + 2],
                    node(record)[-1],
                ],
            ),
        ),
        (
            "power_review.RISING",
            partial(
                power,
                kind="power_unit",
                lines=lambda record, rises: node(
                    record, watts=lambda at: 300 + (at if at <= rises else 2 * rises - at)
                ),
            ),
        ),
        (
            "power_review.FEWEST_READINGS",
            partial(
                power,
                kind="power_few",
                lines=lambda record, missing: [*node(record)[: -1 - missing], node(record)[-1]],
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_count_is_asked_from_its_threshold_on(tmp_path: Path, count: str, is_asked: Any) -> None:
    first = {
        "peers.LEAST_PEERS": 4,
        "patterns.FEWEST_INTERVALS": 7,
        "patterns.LEAST_DEVIATION": 5,
        "patterns.FEWEST_QUALITIES": 6,
        "samples.BY_CHANCE": 4,
        "power_review.CONSTANT": 10,
        "power_review.RISING": 58,  # 0.95 of the 61 pairs of 62 readings
        "power_review.FEWEST_READINGS": 3,  # of 62
    }[count]
    found = []
    for number in (first - 1, first):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(is_asked(folder, number))
    assert found == [False, True]
