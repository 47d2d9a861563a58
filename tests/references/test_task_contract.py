"""The contract of a Task, held by every reference at its mini scale, with a smaller network where that saves time."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.references import configs
from tests.references.one_rank import OneRank
from tests.references.schedules import schedule_of
from tests.references.tasks import opening, same, synthetic, weights
from tests.run.fakes import job
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.progress import Mark
from train_bench.rules import ruleset
from train_bench.run.order import order_fingerprint
from train_bench.run.weights import put_back, write_weights
from train_bench.task import LearningRates, SamplesTaken

ROOT = Path(__file__).parents[2]


class Case(NamedTuple):
    """A mini benchmark in this test: what is changed of it, what is changed so that a few steps on one synthetic
    batch show learning, how many these are, and the share of the first loss that is left then."""

    overrides: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    steps: int = 30
    left: float = 0.9


SPECIAL = {
    "bert": Case(
        overrides=(
            *("model.layers=1", "model.width=16", "model.intermediate=16", "model.dropout=0.1"),
            "hyperparameters.global_batch_size=4",
        ),
        eager=("model.dropout=0.0",),
        steps=60,
    ),
    "dlrm": Case(
        overrides=("data.verify=false",),
        eager=(
            "hyperparameters.opt_learning_rate_warmup_steps=0",
            "hyperparameters.opt_base_learning_rate=1",
        ),
    ),
    "llama2_70b_lora": Case(
        overrides=("model.lora_dropout=0.1",),
        eager=(
            "hyperparameters.opt_learning_rate_warmup_steps=0",
            "hyperparameters.opt_base_learning_rate=0.03",
            "model.lora_dropout=0.0",
        ),
        steps=60,
    ),
    "maskrcnn": Case(
        overrides=("hyperparameters.global_batch_size=4",),
        eager=(
            "hyperparameters.opt_learning_rate_warmup_steps=0",
            "hyperparameters.opt_base_learning_rate=0.01",
        ),
        steps=20,
        left=0.6,
    ),
    "resnet": Case(eager=("hyperparameters.opt_learning_rate_warmup_epochs=0",), steps=12, left=0.7),
    "rnnt": Case(
        overrides=(
            *("model.encoder=16", "model.joint=16", "model.joint_dropout=0.2"),
            *("hyperparameters.global_batch_size=4", "hyperparameters.opt_learning_rate_warmup_epochs=0"),
        ),
        eager=("hyperparameters.opt_base_learning_rate=0.02", "model.joint_dropout=0.0"),
        steps=25,
    ),
    "ssd": Case(
        overrides=("model.widths=[8,8,16]", "model.stem_width=8", "data.verify=false"),
        eager=("hyperparameters.opt_learning_rate_warmup_steps=1",),
        steps=15,
        left=0.8,
    ),
    "unet3d": Case(
        overrides=("model.channels=[4,8]",),
        eager=("hyperparameters.opt_learning_rate_warmup_epochs=0",),
        steps=15,
        left=0.7,
    ),
}
"""Smaller networks and larger steps; what is not here is tried as it is."""

LISTENER = """
import importlib, json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references import configs
from tests.references.one_rank import OneRank
tasks = []
for reference, folder, overrides in json.loads(sys.argv[1]):
    config = getattr(configs, reference)(f"{reference}_mini", "data_dir=" + folder, *overrides)
    task = importlib.import_module(f"train_bench.references.{reference}.task").Task(config)
    task.build(1, OneRank())
    touched = [name for name in opened if name.startswith(folder)]
    assert not touched, touched
    tasks.append((task, folder))
readers = {"sklearn", "nibabel", "sentencepiece", "soundfile"} & sys.modules.keys()
assert not readers, readers
for task, folder in tasks:
    task.open_data()
    assert any(name.startswith(folder) for name in opened), folder
"""


class Mini:
    """A reference's mini benchmark: `built` makes a task of it, `batch` is its global batch size."""

    def __init__(self, reference: str, folder: Path) -> None:
        self.reference, self.folder = reference, folder
        self.case = SPECIAL.get(reference, Case())
        self.config = self.configured()
        self.batch: int = self.config.hyperparameters.global_batch_size

    def configured(self, *overrides: str) -> Any:
        every = ("warm_up_steps=0", *self.case.overrides, f"data_dir={self.folder}", *overrides)
        return getattr(configs, self.reference)(f"{self.reference}_mini", *every)

    def built(self, *overrides: str, seed: int = 1, parallel: OneRank | None = None) -> Any:
        task = importlib.import_module(f"train_bench.references.{self.reference}.task").Task(
            self.configured(*overrides)
        )
        task.build(seed, parallel or OneRank())
        return task

    def mark(self, batches: float) -> Mark:
        return Mark(count=round(batches * self.batch), epoch_num=1, first_epoch_num=1, epoch_count=1)


@pytest.fixture(params=others_in_full(configs.with_data_sets(), ["dlrm", "resnet"]))
def mini(request: pytest.FixtureRequest, prepared: Callable[[str], Path]) -> Mini:
    return Mini(request.param, prepared(request.param))


every_reference = pytest.mark.parametrize("mini", configs.with_data_sets(), indirect=True)
"""In `make test`, too: for tests that take a second."""


@pytest.mark.full
def test_building_touches_no_data_and_opening_does(prepared: Callable[[str], Path]) -> None:
    """In an interpreter of its own, which nothing has made import what reads data."""
    names = configs.with_data_sets()
    cases = [(name, str(prepared(name)), SPECIAL.get(name, Case()).overrides) for name in names]
    command = [sys.executable, "-c", LISTENER, json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@every_reference
def test_data_that_were_prepared_are_known_by_their_manifest(mini: Mini) -> None:
    assert discover.has_data(mini.folder)


@every_reference
def test_opening_the_data_announces_their_sizes_and_that_both_sets_differ(mini: Mini) -> None:
    task = mini.built()
    facts = task.open_data()
    train, evaluation = facts.fingerprint.train, facts.fingerprint.evaluation
    assert mini.config.train_samples == train.samples + train.left_out
    assert train.samples - facts.train_samples in range(mini.batch)
    assert mini.config.eval_samples == evaluation.samples + evaluation.left_out == facts.eval_samples
    assert facts.fingerprint.files_in_common == 0
    assert facts.fingerprint.samples_in_common <= 0.002 * evaluation.compared
    rules = ruleset.load("mini-1.0").benchmark(f"{mini.reference}_mini")
    assert rules.data == {"train": train.digest, "evaluation": evaluation.digest}
    task.close()


def test_an_evaluation_set_opened_from_the_training_files_shows(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = importlib.import_module(f"train_bench.references.{mini.reference}.data")
    honest = opening(data)

    def planted(*arguments: Any) -> tuple[Any, ...]:
        train, _, *rest = honest(*arguments)
        return (train, train, *rest)

    monkeypatch.setattr(sys.modules[honest.__module__], honest.__name__, planted)
    task = mini.built()
    fingerprint = task.open_data().fingerprint
    assert fingerprint.files_in_common > 0
    assert fingerprint.samples_in_common == fingerprint.evaluation.compared > 0
    task.close()


def test_the_order_is_told_as_it_was_trained_on_and_the_same_on_two_ranks(mini: Mini) -> None:
    alone = mini.built()
    facts = alone.open_data()
    alone.train_until(mini.mark(3))
    alone.evaluate()
    one = order_fingerprint([alone.samples_taken()])
    two = order_fingerprint([_taken(mini, rank=rank, steps=3) for rank in range(2)])
    assert (one.trained, one.compared, one.repeated) == (3 * mini.batch, 3 * mini.batch, 0)
    assert replace(two, ranks=1) == one
    evaluation = facts.fingerprint.evaluation
    assert (one.evaluated, one.evaluated_again) == (evaluation.samples, 0)
    alone.close()


def test_the_same_shard_on_both_ranks_shows(mini: Mini) -> None:
    found = order_fingerprint([_taken(mini, rank=rank, steps=3, shard=0) for rank in range(2)])
    assert found.repeated == found.compared // 2 > 0
    assert found.evaluated_again == found.evaluated // 2 > 0


def _taken(mini: Mini, *, rank: int, steps: int, shard: int | None = None) -> SamplesTaken:
    """What one of two ranks is given for some steps and an evaluation; with `shard`, by a reference that mistakes
    its rank for another."""
    parallel = OneRank(rank=rank, size=2)
    task = mini.built(parallel=parallel)
    parallel.rank = rank if shard is None else shard
    task.open_data()
    for _ in range(steps):
        next(task._batches)
    list(task._eval)
    taken: SamplesTaken = task.samples_taken()
    task.close()
    return taken


@every_reference
def test_without_a_data_folder_opening_says_so(mini: Mini) -> None:
    task = mini.built("data_dir=null")
    with pytest.raises(RequestError, match="was not told where its data lie"):
        task.open_data()


@every_reference
def test_training_twice_advances_by_whole_batches(mini: Mini) -> None:
    task = mini.built()
    task.open_data()
    assert task.train_until(mini.mark(1.5)).samples == 2 * mini.batch
    first = weights(task)
    assert task.train_until(mini.mark(2.25)).samples == 3 * mini.batch
    assert task.train_until(mini.mark(3)).samples == 3 * mini.batch
    assert not same(first, weights(task))
    task.close()


def test_the_rates_that_are_told_are_those_of_the_schedule_without_the_warm_up_before_the_clock(
    mini: Mini,
) -> None:
    task = mini.built("warm_up_steps=2")
    assert task.learning_rates() is None
    task.skip(3)
    schedule = schedule_of(task.config)
    highest = max(schedule(step) for step in range(3))
    assert task.learning_rates() == LearningRates(first=schedule(0), highest=highest)


@every_reference
def test_a_skipped_step_holds_the_schedule_and_not_the_data(mini: Mini) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = mini.built(parallel=Overflowing())
    task.open_data()
    assert task.train_until(mini.mark(3)).samples == 3 * mini.batch
    assert task.optimizer_steps == 2
    task.close()


def test_the_loss_falls_on_a_synthetic_batch(mini: Mini) -> None:
    task = mini.built(*mini.case.eager)
    batch = synthetic(mini.reference)(mini.config, mini.batch)
    task.forward.train()
    losses = []
    for _ in range(mini.case.steps):
        task.train_step(iter([batch]))
        losses.append(float(task.last_loss))
    assert losses[-1] < mini.case.left * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(mini: Mini) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = mini.built(seed=seed)
        task.open_data()
        task.train_until(mini.mark(3))
        ends.append(task)
    first, again, other = ends
    assert same(weights(first), weights(again)) and first.evaluate() == again.evaluate()
    assert not same(weights(first), weights(other))
    for task in ends:
        task.close()


def test_neither_the_warm_up_nor_an_evaluation_leaves_a_trace(mini: Mini) -> None:
    ends = []
    for steps, looks in ((0, 0), (2, 1)):
        parallel = OneRank()
        task = mini.built(f"warm_up_steps={steps}", parallel=parallel)
        kept = [value for state in task.optimizer.state.values() for value in state.values()]
        assert parallel.steps_taken == 0 and not any(bool(value.any()) for value in kept)
        drawn = torch.rand(1).item()
        task.open_data()
        task.train_until(mini.mark(1))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mini.mark(2))
        ends.append((weights(task), drawn))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_a_saved_run_continues_identically(mini: Mini, tmp_path: Path) -> None:
    straight = mini.built()
    straight.open_data()
    straight.train_until(mini.mark(2))
    straight.save(tmp_path)
    straight.train_until(mini.mark(4))
    for opened_first in (True, False):
        resumed = mini.built(seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mini.mark(4)).samples == 4 * mini.batch
        assert same(weights(straight), weights(resumed))
        resumed.close()
    straight.close()


@pytest.mark.full
def test_kept_weights_give_another_task_the_same_quality(mini: Mini, tmp_path: Path) -> None:
    qualities = []
    for kept in ((), ("run_0.safetensors",)):
        task = mini.built()
        task.open_data()
        if kept:
            put_back(task, [tmp_path / "weights" / name for name in kept])
        else:
            task.train_until(mini.mark(2))
        qualities.append(task.evaluate())
        if not kept:
            write_weights(task, job(tmp_path), OneRank())
        task.close()
    assert qualities[0] == qualities[1]


def test_a_diverged_run_reports_not_a_number(mini: Mini) -> None:
    task = mini.built()
    task.open_data()
    assert not task.evaluate().diverged
    with torch.no_grad():
        next(task.model.parameters()).fill_(math.nan)
    task.train_until(mini.mark(1))
    assert task.evaluate().diverged
    task.close()


@every_reference
def test_a_batch_that_ranks_cannot_share_is_refused(mini: Mini) -> None:
    with pytest.raises(RequestError, match=f"global_batch_size {mini.batch} cannot be divided among 3 ranks"):
        mini.built(parallel=OneRank(size=3))


SERVED = ("bert", "dlrm", "dlrm_dcnv2", "resnet", "retinanet", "rnnt", "ssd", "unet3d")


@pytest.mark.parametrize("mini", others_in_full(SERVED, ["dlrm", "resnet"]), indirect=True)
def test_answers_are_alike_in_any_batch_and_have_the_quality_of_the_evaluation(mini: Mini) -> None:
    task = mini.built()
    task.open_data()
    task.train_until(mini.mark(6))
    evaluated = task.evaluate().metrics
    every = list(range(task.served_samples()))
    task.load_samples(every)
    together = [answer for first in every[::8] for answer in task.answer(every[first : first + 8])]
    assert task.quality_of(together).metrics == pytest.approx(evaluated, abs=1e-6)
    some = every[-1::-3]
    assert [task.answer([index])[0] for index in some] == [together[index] for index in some]
    task.unload_samples(every)
    with pytest.raises(KeyError):
        task.answer([0])
    task.close()
