"""Times that no run can have are asked for, in milliseconds or in another unit."""

import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests import needs
from tests.judge.campaigns import LOGS
from train_bench.errors import LogError
from train_bench.judge.checks.plausible import _date, _unit_of
from train_bench.judge.published.peers import Entry, find_peers, implausible_speed
from train_bench.judge.tree import judge_tree
from train_bench.rules import ruleset


def findings(folder, change):
    """Kinds of findings of the good log with every line changed."""
    lines = []
    for text in (LOGS / "good.txt").read_text().splitlines():
        event = json.loads(text.partition(":::MLLOG ")[2])
        change(event)
        lines.append(f":::MLLOG {json.dumps(event)}\n")
    (folder / "result_0.txt").write_text("".join(lines))
    (entry,) = judge_tree(folder / "result_0.txt", ruleset_name="mini-1.0", rcp_folders=[]).entries
    return {one.check: one for one in entry.verdicts[0].findings}


def times(factor):
    def change(event):
        event["time_ms"] = int(event["time_ms"] * factor)

    return change


@pytest.mark.parametrize(("factor", "unit"), [(1e-3, "seconds"), (1e3, "microseconds")])
def test_a_clock_in_another_unit_is_recognised(tmp_path, factor, unit):
    found = findings(tmp_path, times(factor))["date"]
    assert found.grade == "review"
    assert f"time_ms seems to hold {unit}" in found.message


def test_a_clock_that_began_with_the_process_is_asked_without_a_guess(tmp_path):
    found = findings(tmp_path, lambda event: event.update(time_ms=event["time_ms"] % 10**7))["date"]
    assert "of January 1970" in found.message and "seems" not in found.message
    assert _unit_of(12345) is None
    assert _unit_of(1_715_000_000 * 10**9) == "nanoseconds"


def test_a_benchmark_in_lines_that_cannot_be_read_is_not_called_unlogged(tmp_path):
    with pytest.raises(
        LogError, match=r"submission_benchmark is in a line that cannot be read, line \d+ of result_0\.txt"
    ):
        findings(tmp_path, lambda event: event.update(time_ms="now"))


def test_the_good_log_raises_no_question(tmp_path):
    assert not {"date", "initialisation", "first_evaluation", "speed"} & findings(tmp_path, times(1)).keys()


@pytest.mark.parametrize(
    ("name", "benchmark", "began"),
    [
        ("training-1.0.0", "resnet", (2020, 6)),
        ("training-5.1.0", "retinanet", (2024, 11)),
        ("training-6.0.0", "llama31_8b", (2025, 6)),
        ("training-6.1.0", "llama31_8b", (2025, 11)),
        ("hpc-3.0.0", "cosmoflow", (2022, 11)),
    ],
)
def test_a_date_more_than_a_year_before_the_round_is_asked(name, benchmark, began):
    rules, first = ruleset.load(name).benchmark(benchmark), datetime(*began, 1, tzinfo=UTC)

    def asked(started):
        record = SimpleNamespace(started_ms=round(started.timestamp() * 1000), file="x")
        return [one.message for one in _date(record, rules)]

    before = first - timedelta(seconds=1)
    assert asked(first) == []
    assert asked(before) == [
        f"The run is of {before:%B %Y}; runs for {name} are of {first:%B %Y} or later. Was the clock right?"
    ]


def test_every_round_has_a_date_and_later_rounds_later_ones():
    dates = {}
    for name in ruleset.names():
        rules = ruleset.load(name)
        (published,) = {one.published for one in rules.benchmarks.values()}
        dates.setdefault(name.partition("-")[0], []).append(published)
    assert set(dates.pop("mini")) == {None}
    assert dates.keys() == {"training", "hpc"}
    assert all(of_family == sorted(set(of_family)) for of_family in dates.values())


def test_an_initialisation_without_a_duration_is_asked(tmp_path):
    at = {}

    def change(event):
        if event["key"] == "init_start":
            at["init"] = event["time_ms"]
        if event["key"] == "init_stop":
            event["time_ms"] = at["init"]

    assert findings(tmp_path, change)["initialisation"].grade == "review"


def test_a_first_evaluation_at_the_target_is_asked(tmp_path):
    def change(event):
        if event["key"] == "eval_accuracy":
            event["value"] = 1.0

    assert findings(tmp_path, change)["first_evaluation"].grade == "review"


def entry(name, minutes, samples=1e6):
    return Entry(
        round="v4.0",
        submitter=name,
        system="box",
        benchmark="resnet",
        division="closed",
        accelerators=8,
        accelerator="H100",
        minutes=minutes,
        samples_to_target=samples,
        runs=5,
    )


def test_an_entry_far_faster_than_its_peers_is_asked_as_a_slow_one_is():
    table = [entry(name, 10 + at) for at, name in enumerate("abcde")]
    assert find_peers(entry("us", 3.0), table).question.endswith("Why is this one faster?")
    assert find_peers(entry("us", 30.0), table).question.endswith("Why is this one slower?")
    assert find_peers(entry("us", 8.0), table).question is None


def test_accelerators_far_beyond_the_best_published_ones_are_asked(tmp_path):
    table = [entry("a", 10.0)]
    best = 1e6 / 600
    assert implausible_speed(tmp_path, entry("us", 1.0), 9 * best, table) is None
    found = implausible_speed(tmp_path, entry("us", 0.01), 100 * best, table)
    assert "100 times as many as that of the fastest published entry of resnet" in found.message


@pytest.mark.parametrize(
    ("key", "value", "asked"),
    [
        ("tracked_stats", {"throughput": 430}, False),  # 3 epochs of 897 samples in 6.3 s
        ("tracked_stats", {"throughput": 200, "loss": 1.0}, True),
        ("tracked_stats", {"imgs_sec": 200}, True),
        ("throughput", 200, True),
        ("tracked_stats", {"loss": 1.0}, False),
        ("tracked_stats", {"throughput": "200"}, False),
        ("tracked_stats", {"throughput": 0}, False),
        ("tracked_stats", [200], False),
    ],
)
def test_times_that_give_more_samples_than_the_log_states_are_asked(tmp_path, key, value, asked):
    def change(event):
        if event["key"] == "block_stop":
            event.update(key=key, value=value)

    found = findings(tmp_path, change).get("stated_speed")
    assert (found is not None) is asked
    if found:
        assert found.grade == "review"
        assert "give 426.3 samples/s, and its own lines state 200 (median of 3)" in found.message


@needs.corpus
@pytest.mark.parametrize("factor", [1, 0.5])
def test_a_published_log_whose_times_are_halved_is_asked_by_its_own_lines(tmp_path, factor):
    text = (needs.CORPUS / "v5.1/Quanta_Cloud_Technology/results/D74H-7U/retinanet/result_1.txt").read_text()
    times = [int(time) for time in re.findall(r'"time_ms": (\d+)', text)]
    log = tmp_path / "result_1.txt"
    log.write_text(
        re.sub(
            r'"time_ms": (\d+)',
            lambda found: f'"time_ms": {round(times[0] + (int(found[1]) - times[0]) * factor)}',
            text,
        )
    )
    (entry,) = judge_tree(log, ruleset_name="v5.1", rcp_folders=[]).entries
    asked = [one for one in entry.verdicts[0].findings if one.check == "stated_speed"]
    assert len(asked) == (factor < 1)


@needs.corpus
def test_a_log_that_counts_batches_as_the_samples_of_an_epoch_is_asked():
    folder = needs.CORPUS / "v5.1/Quanta_Cloud_Technology/results/D74H-7U/retinanet"
    (entry,) = judge_tree(folder, ruleset_name=None, rcp_folders=[]).entries
    found = [one for one in entry.verdicts[0].findings if one.check == "samples"]
    assert [one.grade for one in found] == ["review"]
    assert "counts 4572 samples an epoch, and the data of retinanet have 1170301" in found[0].message
    assert entry.verdicts[0].compliant
