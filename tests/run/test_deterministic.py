"""A run of a seed repeats bit by bit: its weights, and the qualities that it logs."""

import itertools
import json
from pathlib import Path

import pytest

from tests.fake_campaigns import make
from train_bench.campaign import rank_job
from train_bench.campaign.opened import Campaign
from train_bench.cli.program import command
from train_bench.core.job import RANK_MODULES
from train_bench.errors import LaunchError, RequestError
from train_bench.logs import log
from train_bench.plan import discover


def trained(folder, name, ranks, *overrides):
    """The qualities and the digests of the weights of one run."""
    two = ("launcher=torchrun", f"launcher.nproc_per_node={ranks}") if ranks > 1 else ()
    keeping = ("runs=1", "seed=1", "deterministic=true", "keep_weights=true", "launcher.threads_per_rank=1")
    command("run")([f"benchmark={name}_mini", *keeping, *two, *overrides, f"output={folder}"])
    events = log.read(folder / "result_0.txt").events
    told = {event.key: event.value for event in events}
    assert told["deterministic"] is True
    return [event.value for event in events if event.key == "eval_accuracy"], told["kept_weights"]["files"]


@pytest.mark.full
def test_an_epoch_of_a_seed_gives_the_same_weights_twice(tmp_path):
    short = ("benchmark.evaluation.until=1", f"data_dir={tmp_path / 'data'}")
    first, again = (trained(tmp_path / attempt, "resnet", 1, *short) for attempt in ("first", "again"))
    assert first == again


@pytest.mark.full
@pytest.mark.parametrize(("name", "ranks"), [*zip(discover.references(), itertools.cycle([2, 1]))])
def test_every_reference_gives_the_same_weights_twice(tmp_path, name, ranks):
    """Up to its first evaluation; one half of the references on one rank, the other on two. Data are those of the
    user's cache, because the start weights of some are trained when they are prepared."""
    short = (f"benchmark.evaluation.until={make(f'benchmark={name}_mini').jobs[0].schedule.first}",)
    first, again = (trained(tmp_path / attempt, name, ranks, *short) for attempt in ("first", "again"))
    assert first == again


@pytest.mark.full
def test_an_operator_that_cannot_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(RANK_MODULES, "look", "tests.campaign.rank_work")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with pytest.raises(LaunchError, match=r"put_.* does not have a deterministic implementation"):
        campaign = Campaign.of(make("deterministic=true"))
        rank_job.carry_out(campaign, "look", {"varies": True}, tmp_path / "looked")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("precision=tf32",), "goes with fp32, bf16 or fp16; precision=tf32"),
        (("command=train",), "a command has its own ways"),
    ],
)
def test_what_cannot_be_deterministic_is_refused(overrides, sentence):
    with pytest.raises(RequestError, match=sentence):
        make("deterministic=true", *overrides)


def test_the_plan_says_it_to_ranks_and_log():
    (job, *_) = make("deterministic=true").jobs
    assert job.deterministic and job.announcement["deterministic"] is True
    assert "deterministic" not in json.dumps(dict(make().jobs[0].announcement))
