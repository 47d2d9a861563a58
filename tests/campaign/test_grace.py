"""Time for a checkpoint when ranks are warned of their end, from measured checkpoints."""

import json
from dataclasses import replace

import pytest

from tests.fake_campaigns import begin, composed_config, make
from train_bench.campaign import grace
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import GRACE_SECONDS

CHECKPOINTS = ("seed=1", "checkpoint_seconds=0")


def seconds_of(plan):
    (seconds,) = {job.grace_seconds for job in plan.jobs}
    return seconds


def scored(folder, checkpoint, *more):
    """A campaign there, whose checkpoints took so long."""
    begin(make(f"output={folder}", *CHECKPOINTS, *more))
    files.write_json(folder / "score.json", {"restarts": {"checkpoint": checkpoint}})


@pytest.mark.parametrize(
    ("measured", "more", "seconds"),
    [
        (40.0, (), 80.0),
        (10.0, (), GRACE_SECONDS),
        (7200.0, (), 600.0),
        pytest.param(10**400, (), GRACE_SECONDS, id="more than a float holds"),
        (None, (), GRACE_SECONDS),
        ("40", (), GRACE_SECONDS),
        (40.0, ("grace_seconds=5",), 5.0),
        (40.0, ("launcher.nproc_per_node=2", "launcher=torchrun"), GRACE_SECONDS),
    ],
)
def test_ranks_have_twice_the_time_of_a_checkpoint_of_the_latest_campaign_like_theirs(
    tmp_path, measured, more, seconds
):
    scored(tmp_path / "1", measured)
    words = (f"output={tmp_path / '2'}", *CHECKPOINTS, *more)
    assert seconds_of(grace.with_grace(make(*words), composed_config(*words))) == seconds


def line(key, time_ms):
    event = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": None}
    return f":::MLLOG {json.dumps(event | {'metadata': {'file': 'f', 'lineno': 1}})}\n"


@pytest.mark.parametrize(
    ("stop", "more", "seconds"),
    [
        ("run_stop", (), 100.0),
        ("eval_stop", (), GRACE_SECONDS),
        ("run_stop", ("grace_seconds=5",), 5.0),
    ],
)
def test_a_campaign_that_continues_has_the_time_of_its_own_checkpoints_if_none_was_requested(
    tmp_path, stop, more, seconds
):
    folder = tmp_path / "c"
    plan = make(f"output={folder}", *CHECKPOINTS, *more)
    begin(replace(plan, request={**plan.request, "overrides": [*CHECKPOINTS, *more]}))
    keys = ("run_start", "checkpoint_start", "checkpoint_stop", stop)
    times = (1000, 2000, 52_000, 60_000)
    (folder / "result_0.txt").write_text("".join(map(line, keys, times)))
    assert seconds_of(Campaign.open(folder).plan) == seconds
    written = json.loads((folder / "plan.json").read_text())["shared"]["grace_seconds"]
    assert written == (5.0 if more else GRACE_SECONDS)
