"""What a record says of a run, and that every log has one."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from train_bench.core.event import Event
from train_bench.logs.log import Log
from train_bench.logs.record import make_record, read_record
from train_bench.progress import Unit
from train_bench.rules import ruleset

LOGS = Path(__file__).parent / "examples"
MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")


def record_of(name):
    return read_record(LOGS / f"{name}.txt", MINI)[0]


def record_from(events, unit=Unit.EPOCH, **rules):
    read = Log(path=Path("result_4.txt"), events=tuple(events), problems=(), sha256="0")
    return make_record(read, index=4, rules=replace(MINI, unit=unit, **rules))


def events(*, count=897, evaluations=((1, 0.5), (2, 0.9)), status="success"):
    yield Event(key="run_start", value=None, time_ms=0, line=1)
    yield Event(key="train_samples", value=count, time_ms=0, line=2)
    for position, (number, value) in enumerate(evaluations):
        yield Event(
            key="eval_accuracy",
            value=value,
            time_ms=position,
            metadata={"epoch_num": number},
            line=3 + position,
        )
    yield Event(key="run_stop", value=None, time_ms=90_000, metadata={"status": status}, line=99)


def test_a_good_log_says_who_and_what_and_how_long():
    record = record_of("good")
    assert (record.benchmark, record.seed, record.global_batch_size) == (MINI.name, 11, 64)
    assert record.status == "success"
    assert record.init_minutes == pytest.approx(1.003 / 60)
    assert record.train_samples == 897
    assert record.convergence == 3
    assert record.quality == 0.999


def test_minutes_are_from_run_start_to_run_stop():
    assert record_from(events()).minutes == 1.5


def test_epochs_that_are_padded_to_whole_batches_count_with_their_padding():
    padded = Event(key="samples_per_epoch", value=900, time_ms=0, line=100)
    assert record_from(events()).samples == 2 * 897
    assert record_from([padded, *events()]).samples == 2 * 900


def test_time_to_train_is_samples_over_speed():
    record = record_of("good")
    assert record.samples == 3 * 897
    assert record.samples / record.samples_per_second == pytest.approx(record.minutes * 60)


def test_a_benchmark_that_counts_samples_converges_in_samples():
    record = record_from(events(evaluations=((450_000, 0.5), (475_000, 0.9))), Unit.SAMPLE)
    assert record.samples == record.convergence == 475_000


def test_a_benchmark_that_counts_generations_has_no_samples():
    assert record_from(events(), Unit.GENERATION).samples is None


def test_convergence_has_three_decimals():
    assert record_from(events(evaluations=((1.05004, 0.9),))).convergence == 1.05


@pytest.mark.parametrize("name", ["not_converged", "diverged"])
def test_a_run_that_gave_up_has_no_convergence(name):
    record = record_of(name)
    assert record.status == "aborted"
    assert record.convergence is None
    assert record.minutes is not None


@pytest.mark.parametrize("name", ["died_at_once", "died_between_lines", "died_in_a_line"])
def test_a_run_without_an_end_died(name):
    record = record_of(name)
    assert record.status == "died"
    assert record.minutes is None
    assert record.convergence is None


def test_an_evaluation_after_the_end_is_not_counted():
    late = Event(key="eval_accuracy", value=1.0, time_ms=0, metadata={"epoch_num": 7}, line=100)
    assert record_from([*events(), late]).convergence == 2


def test_the_index_is_that_of_the_file(tmp_path):
    path = tmp_path / "result_12.txt"
    path.write_bytes((LOGS / "good.txt").read_bytes())
    assert read_record(path, MINI)[0].index == 12


def test_a_campaigns_deaths_are_part_of_the_record(tmp_path):
    path = tmp_path / "result_0.txt"
    path.write_text("")
    ended = tmp_path / "ranks" / "run_0" / "exit.json"
    ended.parent.mkdir(parents=True)
    ended.write_text('{"exit_code": 1, "deaths": ["rank 1 killed by SIGKILL"]}')
    assert read_record(path, MINI)[0].deaths == ("rank 1 killed by SIGKILL",)


STRANGE = [
    None,
    True,
    "text",
    [],
    {},
    {"a": []},
    float("nan"),
    float("inf"),
    -1,
    0,
    10**400,
    [[[]]],
    "\ud800",
]
KEYS = ["submission_benchmark", "seed", "global_batch_size", "train_samples", "eval_accuracy", "run_stop"]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: ascii(value)[:8])
@pytest.mark.parametrize("key", KEYS)
def test_every_value_has_a_record_in_strict_json(key, strange):
    odd = Event(key=key, value=strange, time_ms=1, metadata={"epoch_num": 1, "status": "success"}, line=2)
    record = record_from([odd, *events()])
    json.dumps(record.as_json(), allow_nan=False)


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: ascii(value)[:8])
def test_every_epoch_number_has_a_record_in_strict_json(strange):
    json.dumps(record_from(events(evaluations=((strange, 0.9),))).as_json(), allow_nan=False)


def test_spoiled_logs_have_records(tmp_path):
    rng = random.Random(1)
    good = (LOGS / "good.txt").read_bytes()
    path = tmp_path / "result_0.txt"
    for _ in range(200):
        data = bytearray(good[: rng.randrange(len(good))])
        for _ in range(rng.randrange(10)):
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        path.write_bytes(bytes(data))
        record, _ = read_record(path, MINI)
        json.dumps(record.as_json(), allow_nan=False)


def trained(samples, *, line):
    return Event(key="train_samples", value=samples, time_ms=0, line=line)


def bert(events):
    """BERT's progress stands in one of two places, and the log itself says in which."""
    sorted_events = sorted(events, key=lambda event: event.line)
    return record_from(sorted_events, Unit.SAMPLE, counted="train_samples")


def without_samples(**options):
    return [event for event in events(**options) if event.key != "train_samples"]


def test_samples_that_are_logged_after_the_last_evaluation_are_what_was_used():
    record = bert([*without_samples(evaluations=((1, 0.5), (1, 0.9))), trained(2_626_598, line=50)])
    assert (record.convergence, record.counted) == (2_626_598, "train_samples")


def test_samples_that_are_logged_before_the_last_evaluation_are_a_limit():
    record = bert([*without_samples(evaluations=((450_000, 0.5), (475_000, 0.9))), trained(10**7, line=2)])
    assert (record.convergence, record.counted) == (475_000, "epoch_num")


def one_by_one(position, metric, value, line):
    return Event(
        key="eval_accuracy",
        value=value,
        time_ms=0,
        metadata={"samples_count": position, "metric": metric},
        line=line,
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_metrics_that_are_logged_one_by_one_are_one_evaluation_and_the_earliest_position_at_the_target_counts(
    backwards,
):
    rules = ruleset.load("training-5.0.0").benchmark("stable_diffusion")
    late = [
        one_by_one(512_000, "FID", 95.0, 10),
        one_by_one(1_024_000, "FID", 85.0, 11),
        one_by_one(512_000, "CLIP", 0.2, 12),
        one_by_one(1_024_000, "CLIP", 0.16, 13),
        one_by_one(1_536_000, "FID", 80.0, 14),
        one_by_one(1_536_000, "CLIP", 0.17, 15),
    ]
    if backwards:
        late = [event._replace(line=line) for line, event in enumerate(reversed(late), start=10)]
    log = Log(
        path=Path("result_0.txt"),
        events=(*without_samples(evaluations=())[:1], *late, *without_samples()[-1:]),
        problems=(),
        sha256="0",
    )
    record = make_record(log, index=0, rules=rules)
    assert sorted((evaluated.value for evaluated in record.evaluations), key=lambda one: -one["FID"]) == [
        {"FID": 95.0, "CLIP": 0.2},
        {"FID": 85.0, "CLIP": 0.16},
        {"FID": 80.0, "CLIP": 0.17},
    ]
    assert record.convergence == 1_024_000


def test_a_run_that_was_started_twice_is_timed_from_the_later_start():
    again = Event(key="run_start", value=None, time_ms=30_000, line=2)
    assert record_from([*list(events())[:1], again, *list(events())[1:]]).minutes == 1.0


def test_a_seed_may_be_a_number_or_a_text_of_one():
    for value in (17, "17"):
        record = record_from([Event(key="seed", value=value, time_ms=0, line=1), *events()])
        assert (record.seed, record.seeds) == (17, (("None", 0, 17),))
