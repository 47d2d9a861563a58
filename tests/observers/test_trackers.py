"""What trackers are told, read back from what they wrote."""

import json
import os
import struct
import time
from pathlib import Path

import pytest

from tests.fake_campaigns import FakeLauncher, begin, judged, make, run_all
from train_bench.errors import LaunchError, RequestError
from train_bench.forecast.live import Forecast, Interval
from train_bench.observers.observer import Observers
from train_bench.observers.tracking import Tracking, named, places

END_MS = 1_800_000_000_000
FORECAST = Forecast(run=None, campaign=Interval(END_MS, END_MS - 60_000, END_MS + 120_000), passes=0.75)


def tracking(plan, name, said, *, limit=300, **more):
    return Tracking(
        name,
        plan.jobs,
        {"benchmark": plan.benchmark, "seeds": plan.seeds},
        rcp_folders=[Path("/nowhere")],
        online=False,
        limit_seconds=limit,
        say=said.append,
        forecast=lambda: FORECAST,
        **more,
    )


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A campaign of five runs, interrupted by a dead run and continued, that both trackers saw."""
    plan = make(f"output={tmp_path_factory.mktemp('tracked') / 'campaign'}", "seed=1")
    begin(plan)
    said = []
    run(plan, [tracking(plan, "tensorboard", said)], FakeLauncher(run_2="killed"), dies=True)
    run(plan, [tracking(plan, name, said) for name in ("wandb", "tensorboard")], FakeLauncher())
    assert said == []
    return plan


def run(plan, watchers, launcher, *, dies=False):
    try:
        run_all(plan, launcher, Observers(watchers), retry_failed=not dies)
    except LaunchError:
        assert dies


def evaluations(plan):
    """Run -> position -> quality, as the records have it."""
    return {
        record.index: {item.position: item.value for item in record.evaluations}
        for record in judged(plan).records
    }


@pytest.mark.full
def test_wandb_holds_configuration_quality_score_and_files(tracked):
    (file,) = (tracked.jobs[0].folder / "tracking").rglob("*.wandb")
    records = list(wandb_records(file))
    config = {
        item.key: json.loads(item.value_json) for record in records for item in record.run.config.update
    }
    assert config["benchmark"] == tracked.benchmark
    seen, forecasts = {}, 0
    for record in records:
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
        }
        for job_ in tracked.jobs:
            name = f"run_{job_.index}"
            if f"{name}/top1" in row:
                seen.setdefault(job_.index, {})[row[f"{name}/position"]] = row[f"{name}/top1"]
        if "forecast/minutes_left" in row:
            assert row["forecast/upper"] - row["forecast/lower"] == pytest.approx(3)
            assert row["forecast/reference_check_passes"] == 0.75
            forecasts += 1
    assert seen == evaluations(tracked)
    assert forecasts == sum(len(seen[index]) for index in (2, 3, 4))  # those of finished runs come too late
    summary = {
        item.key or item.nested_key[0]: json.loads(item.value_json)
        for record in records
        for item in record.summary.update
    }
    assert summary["score_minutes"] == judged(tracked).score.score_minutes
    assert summary["valid"] is True
    artifacts = [record.request.log_artifact.artifact for record in records] + [
        record.artifact for record in records
    ]
    names = {entry.path for artifact in artifacts for entry in artifact.manifest.contents}
    assert {"plan.json", "result_0.txt", "result_4.txt", "record_4.json"} <= names


@pytest.mark.full
def test_tensorboard_holds_configuration_quality_and_score(tracked):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tracked.jobs[0].folder / "tracking" / "tensorboard"
    for index, expected in evaluations(tracked).items():
        read = EventAccumulator(str(folder / f"run_{index}")).Reload()
        per_unit = tracked.jobs[0].config["train_samples"]
        quality = {item.step: item.value for item in read.Scalars("quality/top1")}
        assert quality == {at * per_unit: pytest.approx(value) for at, value in expected.items()}
    texts = EventAccumulator(str(folder)).Reload()
    told = texts.Scalars("forecast/minutes_left")
    assert told
    for item in told:
        assert item.value == pytest.approx((END_MS / 1000 - item.wall_time) / 60, rel=1e-5)
    score = json.loads(texts.Tensors("score")[-1].tensor_proto.string_val[0])
    assert score == json.loads(json.dumps(judged(tracked).score.as_json()))
    config = json.loads(texts.Tensors("config")[-1].tensor_proto.string_val[0])
    assert config["benchmark"] == tracked.benchmark


def failing(name, pipe, *_):
    pipe.send("the disk of the tracker is full")
    raise SystemExit(1)


def hanging(name, pipe, *_):
    os.setsid()
    pipe.send(None)
    time.sleep(600)


def never_ready(name, pipe, *_):
    os.setsid()
    time.sleep(600)


def slow_to_start(name, pipe, folder, *_):
    time.sleep(2)
    (folder / "ready").touch()
    pipe.send(None)


class SeesReady(FakeLauncher):
    """Remembers for each run whether the tracker was ready when it began."""

    def __init__(self):
        super().__init__()
        self.ready = []

    def launch(self, job, rank_argv):
        self.ready.append((job.folder / "ready").exists())
        return super().launch(job, rank_argv)


def test_a_tracker_that_fails_costs_a_warning_and_no_run(begun):
    said = []
    run(begun, [tracking(begun, "wandb", said, target=failing)], FakeLauncher())
    assert judged(begun).score.valid
    assert said == ["tracking with wandb failed, results are not affected: the disk of the tracker is full"]


@pytest.mark.full
def test_a_tracker_that_hangs_is_given_up_and_leaves_no_process(begun):
    said = []
    watcher = tracking(begun, "wandb", said, limit=1, target=hanging)
    run(begun, [watcher], FakeLauncher())
    assert judged(begun).score.valid
    assert "was stopped" in said[0]
    assert not watcher._process.is_alive()


@pytest.mark.full
def test_a_tracker_that_never_becomes_ready_is_given_up_before_the_first_run(begun):
    said = []
    watcher = tracking(begun, "wandb", said, limit=1, target=never_ready)
    run(begun, [watcher], FakeLauncher())
    assert judged(begun).score.valid
    assert len(said) == 1
    assert "was not ready after 1 s and was stopped" in said[0]
    assert not watcher._process.is_alive()


@pytest.mark.full
def test_the_first_run_waits_until_the_tracker_is_ready(begun):
    launcher = SeesReady()
    run(begun, [tracking(begun, "wandb", [], target=slow_to_start)], launcher)
    assert launcher.ready == [True] * len(begun.jobs)


def test_a_tracker_that_does_not_listen_never_blocks_the_campaign(begun):
    said = []
    watcher = tracking(begun, "wandb", said, limit=1, target=hanging)
    watcher.campaign_started(total=5, done=0)
    started = time.monotonic()
    for _ in range(20_000):
        watcher.run_started(begun.jobs[0])
    assert time.monotonic() - started < 300, "the tracker listens after 600 s"
    watcher.campaign_ended()


def test_trackers_are_asked_for_by_name_or_list():
    assert named("none") == ()
    assert named("tensorboard") == ("tensorboard",)
    assert named(["wandb", "tensorboard", "wandb"]) == ("wandb", "tensorboard")


@pytest.mark.parametrize("trackers", [3, None, {"wandb": 1}, "mlflow", ["wandb", "x"]])
def test_what_is_no_tracker_is_refused_with_those_that_are(trackers):
    with pytest.raises(RequestError, match=r"wandb.*tensorboard|tensorboard.*wandb"):
        named(trackers)


def test_a_tracker_that_is_not_installed_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install '\S+\[tensorboard\]'"):
        named("tensorboard")


def wandb_records(path):
    """The records of a `.wandb` file: a header of 7 bytes, then a log of LevelDB in blocks of 32 KiB, each piece
    with checksum, length and type (1 whole, 2 first, 3 middle, 4 last)."""
    from wandb.proto.wandb_internal_pb2 import Record

    content = path.read_bytes()
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole = (b"" if kind in (1, 2) else whole) + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)


def test_where_trackers_write_is_told_with_the_command_that_shows_or_uploads_it(tmp_path):
    wandb, tensorboard = places(tmp_path / "a b", ("wandb", "tensorboard"))
    folder = tmp_path / "a b" / "tracking"
    assert wandb == f"tracking: {folder / 'wandb'} (wandb sync '{folder / 'wandb'}'/*run-*)"
    assert (
        tensorboard == f"tracking: {folder / 'tensorboard'} (tensorboard --logdir '{folder / 'tensorboard'}')"
    )
