"""Contract tests of `train_bench.task.Task` on a reference: `CHECKS`, one function each. The docstring is the printed
promise; a violation raises `Broken`. The checks call nothing but the contract, in this process on a CPU, and train a
few global batches."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from train_bench.check.one_rank import OneRank
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.progress import Mark, Unit
from train_bench.run.order import order_fingerprint
from train_bench.task import BenchmarkConfig, DataFacts, Task

BATCHES = 3
"""Global batches that most checks train; units of a benchmark whose progress is not counted in samples."""

SAME_SAMPLES = 0.002
"""Largest share of the evaluation set that may be in the training set: real data sets have duplicates."""


class Broken(Exception):
    """A violated promise: a sentence with the observed value and the remedy."""


class NotTried(Exception):
    """A check that does not apply to this benchmark; the reason, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark under test: the arguments of a run, and the factory that makes its task from a configuration."""

    job: Job
    config: BenchmarkConfig
    make: Callable[[BenchmarkConfig], Task]

    @property
    def batch(self) -> int:
        """Samples of a global batch; 1 where progress is not counted in samples."""
        return 1 if self.job.unit is Unit.GENERATION else self.config.hyperparameters.global_batch_size

    def mark(self, batches: float) -> Mark:
        """Position at which training stops."""
        return Mark(count=round(batches * self.batch), epoch_num=1, first_epoch_num=1, epoch_count=1)

    @contextmanager
    def built(
        self, *, seed: int = 1, rank: int = 0, ranks: int = 1, **changes: Any
    ) -> Iterator[tuple[Task, OneRank]]:
        """Context: a task before the clock starts, and the rank that it takes itself for; closed in the end."""
        parallel = OneRank(rank=rank, size=ranks)
        task = self.make(replace(self.config.for_ranks(ranks), **changes))
        try:
            task.build(seed, parallel)
            yield task, parallel
        finally:
            task.close()

    @contextmanager
    def opened(self, **how: Any) -> Iterator[tuple[Task, OneRank, DataFacts]]:
        """Context: the same with its data open."""
        with self.built(**how) as (task, parallel):
            yield task, parallel, task.open_data()


def building_touches_no_data(case: Case) -> None:
    """Building reads nothing of the data set; opening does."""
    folder = str(case.config.data_dir)
    with _files_opened() as opened, case.built() as (task, _):
        read = [name for name in opened if name.startswith(folder)]
        if read:
            raise Broken(f"build() opened {read[0]}; what reads the data set belongs into open_data().")
        task.open_data()
        if case.config.train_samples is not None and not any(name.startswith(folder) for name in opened):
            raise Broken(f"open_data() opened nothing in {folder}, where the data were prepared.")


def tensors_are_named_once(case: Case) -> None:
    """Every initialized tensor has a name of its own."""
    with case.built() as (task, _):
        names = list(task.initialized_tensors())
    if not names or len(set(names)) < len(names):
        raise Broken(f"initialized_tensors() gave {len(names)} names, {len(set(names))} of them different.")


def data_have_the_stated_sizes(case: Case) -> None:
    """The data have the sizes that the configuration states, and no sample is in both sets."""
    with case.opened() as (_, _, facts):
        if facts.fingerprint is None:
            if facts.train_samples is not None:
                raise Broken("open_data() gave no fingerprint of the sets that it opened.")
            return
        train, evaluation = facts.fingerprint.train, facts.fingerprint.evaluation
        for name, stated, opened in (
            ("train_samples", case.config.train_samples, train.samples + train.left_out),
            ("eval_samples", case.config.eval_samples, evaluation.samples + evaluation.left_out),
        ):
            if stated != opened:
                raise Broken(f"{name} is {stated}, and open_data() opened {opened} samples.")
        same = facts.fingerprint.samples_in_common
        if facts.fingerprint.files_in_common or same > SAME_SAMPLES * evaluation.compared:
            raise Broken(
                f"Training and evaluation share {facts.fingerprint.files_in_common} files and {same} of "
                f"{evaluation.compared} samples; what is evaluated may not be trained on."
            )


def whole_batches_are_trained(case: Case) -> None:
    """Training goes on to the mark and rounds up to a whole global batch."""
    with case.opened() as (task, parallel, _):
        for until, due in ((1.5, 2), (2.25, 3), (3, 3)) if case.batch > 1 else ((1, 1), (2, 2)):
            before = _state(parallel)
            progress = task.train_until(case.mark(until))
            if case.batch > 1 and progress.samples != due * case.batch:
                raise Broken(
                    f"train_until() to {until:g} global batches of {case.batch} said {progress.samples} samples; due "
                    f"are {due * case.batch}."
                )
            if (until, due) != (3, 3) and _same(before, _state(parallel)):
                raise Broken("train_until() changed no weight.")


def ranks_share_the_samples(case: Case) -> None:
    """Two ranks are given what one rank is given, in the same order, and each sample once."""
    if case.job.unit is Unit.GENERATION:
        raise NotTried("it makes its samples itself")
    if case.config.SHARDED:
        raise NotTried("its ranks hold different parameters, which takes a process for each")
    taken = {}
    for ranks in (1, 2):
        of_ranks = []
        for rank in range(ranks):
            with case.opened(rank=rank, ranks=ranks) as (task, _, _):
                task.train_until(case.mark(BATCHES))
                task.evaluate()
                of_ranks.append(task.samples_taken())
        taken[ranks] = order_fingerprint(of_ranks)
        if taken[ranks].repeated or taken[ranks].evaluated_again:
            raise Broken(
                f"On {ranks} ranks {taken[ranks].repeated} of {taken[ranks].trained} samples came again within an "
                f"epoch, and {taken[ranks].evaluated_again} of {taken[ranks].evaluated} in one evaluation."
            )
    one, two = taken[1], taken[2]
    if (one.trained, one.digest, one.evaluated) != (two.trained, two.digest, two.evaluated):
        raise Broken(
            f"One rank trained on {one.trained} samples and evaluated {one.evaluated}, two on {two.trained} and "
            f"{two.evaluated}, {'in the same' if one.digest == two.digest else 'in another'} order."
        )


def the_seed_decides(case: Case) -> None:
    """The same seed gives the same numbers to the last digit, another seed gives others."""
    ends = []
    for seed in (1, 1, 2):
        with case.opened(seed=seed) as (task, parallel, _):
            task.train_until(case.mark(BATCHES))
            ends.append((_state(parallel), task.evaluate()))
    (first, quality), (again, repeated), (other, _) = ends
    if not _same(first, again) or quality != repeated:
        raise Broken(f"Seed 1 gave {quality.metrics}, and again {repeated.metrics}, with other weights.")
    if _same(first, other):
        raise Broken("Seeds 1 and 2 gave the same weights; draw them after `build` has got the seed.")


def an_evaluation_changes_nothing(case: Case) -> None:
    """An evaluation changes nothing that training sees."""
    ends = []
    for evaluations in (0, 2):
        with case.opened() as (task, parallel, _):
            task.train_until(case.mark(1))
            for _ in range(evaluations):
                task.evaluate()
            task.train_until(case.mark(2))
            ends.append(_state(parallel))
    if not _same(*ends):
        raise Broken("A run that was evaluated in between has other weights than one that was not.")


def a_warm_up_leaves_no_trace(case: Case) -> None:
    """Warming up changes nothing that training sees."""
    if "warm_up_steps" not in {field.name for field in fields(case.config)}:
        raise NotTried("its configuration has no warm_up_steps")
    ends = []
    for steps in (0, 2):
        with case.opened(warm_up_steps=steps) as (task, parallel, _):
            task.train_until(case.mark(2))
            ends.append((_state(parallel), torch.rand(1).item()))
    if not _same(ends[0][0], ends[1][0]) or ends[0][1] != ends[1][1]:
        raise Broken("After a warm-up of 2 steps, training gives other weights than without.")


def a_saved_run_continues(case: Case) -> None:
    """A run that was saved continues identically, whenever its data are opened."""
    with tempfile.TemporaryDirectory() as folder:
        with case.opened() as (task, parallel, _):
            task.train_until(case.mark(1))
            task.save(Path(folder))
            task.train_until(case.mark(2))
            straight = _state(parallel)
        for opened_first in (True, False):
            with case.built(seed=99) as (task, parallel):
                if opened_first:
                    task.open_data()
                task.load(Path(folder))
                if not opened_first:
                    task.open_data()
                task.train_until(case.mark(2))
                if not _same(straight, _state(parallel)):
                    when = "after" if opened_first else "before"
                    raise Broken(
                        f"load() {when} open_data() went on with other weights than the run that was saved."
                    )


def a_diverged_run_is_told(case: Case) -> None:
    """NaN weights give a NaN quality."""
    with case.opened() as (task, parallel, _):
        with torch.no_grad():
            next(parallel.model.parameters()).fill_(math.nan)
        task.train_until(case.mark(1))
        quality = task.evaluate()
    if not quality.diverged:
        raise Broken(f"evaluate() gave {quality.metrics} for a network whose weights are NaN.")


def an_evaluation_has_the_metrics_of_the_target(case: Case) -> None:
    """An evaluation gives the metrics of the target, and an untrained network does not reach it."""
    with case.opened() as (task, _, _):
        quality = task.evaluate()
    reason = case.job.target.refuse(quality, "evaluate()")
    if reason is not None:
        raise Broken(reason)
    if case.job.target.reached(quality):
        raise Broken(
            f"An untrained network has {quality.metrics}, which reaches the target {case.job.target}."
        )


def a_batch_that_ranks_cannot_share_is_refused(case: Case) -> None:
    """A global batch that ranks cannot share is refused before anything is trained."""
    ranks = case.config.hyperparameters.global_batch_size + 1
    try:
        with case.built(ranks=ranks):
            pass
    except RequestError:
        return
    raise Broken(f"build() on {ranks} ranks took a global batch of {ranks - 1}; raise RequestError.")


CHECKS: tuple[Callable[[Case], None], ...] = (
    building_touches_no_data,
    tensors_are_named_once,
    data_have_the_stated_sizes,
    an_evaluation_has_the_metrics_of_the_target,
    whole_batches_are_trained,
    ranks_share_the_samples,
    the_seed_decides,
    an_evaluation_changes_nothing,
    a_warm_up_leaves_no_trace,
    a_saved_run_continues,
    a_diverged_run_is_told,
    a_batch_that_ranks_cannot_share_is_refused,
)


def promise(check: Callable[[Case], None]) -> str:
    """Promise of a check, without the full stop."""
    return (check.__doc__ or "").strip().rstrip(".")


def _state(parallel: OneRank) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in parallel.replicated()}


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@contextmanager
def _files_opened() -> Iterator[list[str]]:
    """Context: names of files that this process opens. An audit hook cannot be removed; it only stops recording."""
    names: list[str] = []
    listening = True

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event == "open":
            names.append(str(arguments[0]))

    sys.addaudithook(hear)
    try:
        yield names
    finally:
        listening = False
