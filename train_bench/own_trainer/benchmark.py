"""A trainer of your own under the clock of train_bench: `from train_bench import Benchmark`.

    benchmark = Benchmark()
    benchmark.announce(**benchmark.hyperparameters)
    benchmark.init_start()
    ...                                          # build and warm up, without reading data
    benchmark.weights_initialized("conv1.weight", "conv1.bias")
    benchmark.init_stop()
    benchmark.run_start(train_samples=60_000, eval_samples=10_000)
    for mark in benchmark.blocks():
        ...                                      # train until mark.count samples were taken
        benchmark.eval_start()
        benchmark.report(accuracy)               # the last of them stops the clock

`begin()` is short for the second and third line, and `batches()` for the loop around a loader.
Every rank makes the same calls; rank 0 writes the log. Where `train-bench run command=...` has started the program,
`Benchmark()` knows its run; outside a campaign, arguments state it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from train_bench import __version__
from train_bench.core.files import cannot_write
from train_bench.core.signals import handle_ending
from train_bench.errors import OutOfOrder, RequestError, WriteError
from train_bench.own_trainer import handed_over, job
from train_bench.own_trainer.ranks import Broadcast, OwnRanks
from train_bench.progress import Mark, Progress, Unit
from train_bench.quality import Quality, Target
from train_bench.run.clock import Clock

if TYPE_CHECKING:
    from train_bench.rules.checks import Failure
    from train_bench.run.events import Log


T = TypeVar("T")

PACKAGES = (
    "numpy",
    "torch",
    "jax",
    "tensorflow",
    "lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "horovod",
)
"""Versions that the log says behind `run_stop`, of those that the program has imported."""

ACCUMULATED = "gradient_accumulation_steps"
"""Key that is 1 for a program that does not announce it."""

OF_OTHERS = "s["
"""Beginning of a reference to values of other lines in the expression of a rule."""


class Benchmark:
    """A run of a user's own trainer: writes the log and decides when the run is over.

    In a campaign no argument is needed. Outside one, a program states:

    benchmark          the name that the log gives, for example "resnet"
    ruleset            the round, for example "1.1.0"
    folder             where `result_<run>.txt` is written; `train-bench judge FOLDER` reads it
    run, seed          number of the run, and its seed; default: the system's entropy
    until              the run stops without converging after this point, in the benchmark's unit
    period             from one evaluation to the next, in that unit, where the rules give no schedule
    samples_per_epoch  samples that an epoch takes, where that unit is the epoch

    Anywhere: `rank` and `world_size` where neither torch.distributed nor a launcher's variables give them, and
    `broadcast`, which is called by every rank with a value and gives that of rank 0; torch.distributed needs none.

    Raises `RequestError` for what the round forbids, and `OutOfOrder` for a call that is not due. A program that ends
    before its run is decided, by an exception, `sys.exit` or a signal, leaves a log that ends with `aborted`.
    """

    knows_ranks = True
    """False where lines of a program are followed: it may have more processes than it says."""

    evaluate: Callable[[str], dict[str, float]] = staticmethod(job.ask_evaluator)
    """Metrics of a file by the evaluator of the run."""

    def __init__(
        self,
        benchmark: str | None = None,
        ruleset: str | None = None,
        *,
        folder: str | Path | None = None,
        run: int = 0,
        seed: int | None = None,
        until: float | None = None,
        period: float | None = None,
        samples_per_epoch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        broadcast: Broadcast | None = None,
    ) -> None:
        if job.VARIABLE in os.environ:
            self._job = job.job_of_campaign(benchmark, ruleset)
        else:
            self._job = job.alone(benchmark, ruleset, folder, run, seed, until, period, samples_per_epoch)
        self._ranks = OwnRanks(rank, world_size, broadcast)
        self._announced: dict[str, Any] = {}
        self._tensors: tuple[str, ...] = ()
        self._log: Log | None = None
        self._clock: Clock | None = None
        self._started_with: Any = None
        self._train_samples: int | None = None
        self._sizes: dict[str, int] = {
            name: size for name, size in self._job.sizes.items() if size is not None
        }
        self._taken = 0
        self._mark: Mark | None = None
        self._process = os.getpid()
        self._further: dict[str, Any] = {}

    @property
    def seed(self) -> int:
        """Base of all randomness of the run."""
        return self._job.seed

    @property
    def run(self) -> int:
        """The number of the run in its campaign, counted from 0."""
        return self._job.run

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Planned hyperparameters, by mllog key; empty outside a campaign. A program announces those that it trains
        with."""
        return dict(self._job.hyperparameters)

    @property
    def target(self) -> Target:
        """Target of the evaluations."""
        return self._job.target

    @property
    def train_samples(self) -> int | None:
        """Size of the training set: planned, or given to `begin`; None if neither says it."""
        return self._sizes.get("train_samples")

    @property
    def eval_samples(self) -> int | None:
        """Size of the evaluation set, likewise."""
        return self._sizes.get("eval_samples")

    @property
    def data_dir(self) -> Path | None:
        """Folder of the prepared data; None if it is not set."""
        return self._job.data_dir

    @property
    def has_evaluator(self) -> bool:
        """True if an evaluator measures the quality of this run."""
        return self._job.evaluator

    @property
    def rank(self) -> int:
        """The number of this process among all that train, counted from 0."""
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self._ranks.size

    @property
    def done(self) -> bool:
        """True if the run is decided: the target is reached, a metric is not finite, or the schedule is over."""
        return self._clock is not None and self._clock.is_decided

    @property
    def reached(self) -> bool:
        """True if the target is reached."""
        return self._clock is not None and self._clock.status == "success"

    def announce(self, **values: Any) -> None:
        """Announce values that the round requires, by mllog key, before `run_start`; a value that the round or the plan
        forbids is refused at once."""
        from train_bench.rules.checks import OF_THE_RUN

        if self._clock is not None and (self._clock.is_running or self.done):
            raise OutOfOrder("announce() was called after run_start(); what is announced is decided before.")
        own = sorted(OF_THE_RUN & values.keys())
        if own:
            raise RequestError(f"announce({own[0]}=...): the run logs {own[0]} itself; leave it out.")
        reasons = self._other_than_planned(values)
        # Rules that compare a value with others, which may still be announced, wait for run_start.
        reasons += self._explained(
            failure
            for failure in self._broken(values)
            if failure.kind == "check" and failure.key in values and OF_OTHERS not in failure.rule
        )
        _refuse(reasons)
        self._announced |= values
        if self._log is not None:
            self._log.values(values)

    def begin(
        self,
        *conflicts: str,
        metrics: Iterable[str] = (),
        train_samples: int | None = None,
        eval_samples: int | None = None,
        **values: Any,
    ) -> bool:
        """Announce the planned hyperparameters, with `values` of the program in place of theirs, and call `init_start`;
        returns False where the program has called it before. What is wrong is refused in one `RequestError`, with
        `conflicts`: settings that cannot be timed, as sentences. `metrics` are those that will be reported, and sizes
        those of the data sets, for `run_start`."""
        reasons = [*conflicts, *self._other_metrics(list(metrics))]
        for name, size in (("train_samples", train_samples), ("eval_samples", eval_samples)):
            if size is not None and self._sizes.setdefault(name, size) != size:
                reasons.append(f"{name} is {size} in this program, and {self._sizes[name]} in the plan.")
        begun = self._clock is not None
        if not begun:
            try:
                self.announce(**{**self._job.hyperparameters, **values})
            except RequestError as error:
                reasons.append(str(error))
            reasons += [reason for reason in (self._ranks.refuse(),) if reason is not None and not conflicts]
        _refuse(reasons)
        if not begun:
            self.init_start()
        return not begun

    def init_start(self) -> None:
        """Start of model construction. Comes before the model, the compiler and the first batch, which may be
        synthetic."""
        if self._clock is not None:
            self._clock.init_start()
            return
        from train_bench.run import events

        reason = self._ranks.refuse()
        if reason is not None:
            raise RequestError(reason)
        path = self._job.log if self.rank == 0 else None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            events.claim(path)
        self._log = events.Log(path, events.wall_clock_ms())
        self._clock = Clock(self._log, self._ranks, self._job.target, whose="This run")
        self._watch_the_end()
        self._log.cache_clear(self._job.caches_dropped)
        self._log.announce(self._all_announced(), seed=self._job.seed)
        self._clock.init_start()

    def weights_initialized(self, *tensors: str) -> None:
        """Names of initialised tensors, if the rules require them; before `init_stop`."""
        if self._log is None:
            raise OutOfOrder(
                "weights_initialized() was called before init_start(); allowed now: init_start()."
            )
        self._tensors += tensors
        self._log.initialized(tensors)

    def init_stop(self) -> None:
        """End of model construction and warm-up; no data were read."""
        self._begun("init_stop").init_stop()

    def run_start(self, train_samples: int | None = None, eval_samples: int | None = None) -> None:
        """Start the clock once every rank is here; data may be read from here on, on every rank. The sizes are those of
        the data sets; default: those of the plan. Raises `RequestError` where a value that the round requires was not
        announced."""
        from train_bench.run import processors

        clock = self._begun("run_start")
        if train_samples is None and self._job.unit is not Unit.SAMPLE:
            train_samples = self.train_samples
        eval_samples = self.eval_samples if eval_samples is None else eval_samples
        self._refuse_missing({"train_samples": train_samples, "eval_samples": eval_samples})
        marks = self._job.schedule(self._announced).marks()
        if self.rank == 0:
            job.mark_start()
        self._started_with = clock.run_start(marks, processors.read_cpu_times)
        self._train_samples = train_samples
        assert self._log is not None
        self._log.sizes(train_samples, eval_samples)

    def blocks(self) -> Iterator[Mark]:
        """The blocks of training until the run is decided, each of which ends with `eval_start` and `report`."""
        while not self.done:
            yield self.block_start()

    def batches(
        self, loader: Iterable[T], evaluate: Callable[[], float | Mapping[str, float]]
    ) -> Iterator[T]:
        """Batches of the `loader`, which is iterated again and again, until the run is decided. Before the next batch
        after an evaluation is due, calls `evaluate`, which returns the metric or metrics of the target. A batch has the
        samples of its first tensor, on every rank."""
        taken, mark = 0, self.block_start()
        for epoch in itertools.count():
            before = taken
            sampler: Any = getattr(loader, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            for batch in loader:
                yield batch
                taken += _samples(batch) * self.world_size
                if taken < mark.count:
                    continue
                self.eval_start(samples=taken)
                found = evaluate()
                if self.report(**found) if isinstance(found, Mapping) else self.report(found):
                    return
                mark = self.block_start()
            if taken == before:
                raise RequestError(
                    f"The loader gave no batch in epoch {epoch + 1}; give batches() one that can be iterated again, "
                    "such as a DataLoader or a list."
                )

    def block_start(self) -> Mark:
        """Begin a block of training: until `mark.count` samples in all, rounded up to a whole batch."""
        self._mark = self._begun("block_start").block_start()
        return self._mark

    def eval_start(self, samples: int | None = None, extras: Mapping[str, float] | None = None) -> None:
        """End the block and begin its evaluation. `samples`, the number consumed since the start of training, is
        checked against the mark; `extras` are further values that the rules require for a block, by mllog key."""
        clock = self._begun("eval_start")
        if samples is not None and self._mark is not None and samples < self._mark.count:
            raise RequestError(
                f"eval_start(samples={samples}): this evaluation is due at {self._mark.count} samples "
                f"({self._job.unit.value} {self._mark.epoch_num:g}); count samples of all ranks, not steps or epochs."
            )
        batch = self._announced.get("global_batch_size")
        if samples is not None and self._mark is not None and isinstance(batch, int):
            last = self._mark.count + batch - 1
            if samples > last:
                raise RequestError(
                    f"eval_start(samples={samples}): this evaluation was due at {self._mark.count} samples, with the "
                    f"batch that completes them at {last} at most; end the block there."
                )
        self._taken = samples if samples is not None else self._mark.count if self._mark is not None else 0
        clock.eval_start(Progress(samples=self._taken, extras=extras or {}))

    def report(self, value: float | None = None, *, hand_over: Any = None, **metrics: float) -> bool:
        """Report the metrics of the evaluation, by the names of the target; a single one needs no name. Rank 0's count.
        In a run with an evaluator `hand_over` is measured in their place; it is as for `hand_over()`. Returns whether
        the run is decided; then the clock has stopped and the log is closed."""
        clock = self._begun("report")
        if self._job.evaluator and hand_over is not None:
            return self.hand_over(hand_over)
        if self._job.evaluator:
            raise RequestError(
                "report(): this run has an evaluator, which measures the quality; call hand_over(FILE) with the file "
                "of predictions or weights that it reads."
            )
        if value is not None:
            metrics[self._job.target.only_metric()] = value
        return self._decided(clock, metrics, "report()")

    def hand_over(self, path: Any) -> bool:
        """Hand over predictions or weights to the evaluator of the run, in place of `report`: its metrics are those of
        the evaluation. Takes the path of a file; or an array or tensor, which it gets as `.npy`; or several by name,
        such as a `state_dict()`, as `.safetensors`. Those of rank 0 count. Returns as `report` does."""
        clock = self._begun("report")
        if not self._job.evaluator:
            raise RequestError(
                "hand_over(): this run has no evaluator; plan one, evaluator='python evaluate.py {handed}', or "
                "report() the metrics."
            )
        metrics = self.evaluate(str(handed_over.file_of(path))) if self.rank == 0 else {}
        return self._decided(clock, metrics, "The evaluator")

    def _decided(self, clock: Clock, metrics: Mapping[str, Any], call: str) -> bool:
        values = {name: _number(metric) for name, metric in metrics.items()}
        if not clock.report(Quality(metrics=values), call):
            return False
        took = self._train_samples is None and self._job.unit is Unit.SAMPLE
        clock.run_stop(train_samples=self._taken if took else None)
        self._tell_of_the_run()
        self._close()
        return True

    def tell(self, **facts: Any) -> None:
        """Log further values after `run_stop`, by keys that no round has."""
        self._further |= facts

    def wrote(self, log: Path) -> bool:
        """True if the events of `log` are those that this object has written, and no others."""
        from train_bench.own_trainer.program_log import digest_of_events

        return self._log is not None and self._log.digest == digest_of_events(log)

    def _begun(self, word: str) -> Clock:
        if self._clock is None:
            raise OutOfOrder(f"{word}() was called before anything else; allowed now: init_start().")
        self._clock.refuse_unless_due(word)
        return self._clock

    def _all_announced(self) -> dict[str, Any]:
        if (
            self._job.announcement.get("submission_platform") is None
            and "submission_platform" not in self._announced
        ):
            from train_bench.run import system

            self._announced["submission_platform"] = system.platform_name(system.describe(), nodes=1)
        return {**self._job.announcement, **self._announced}

    def _other_than_planned(self, values: Mapping[str, Any]) -> list[str]:
        decided = {**self._job.announcement, **self._job.hyperparameters} if self._job.of_campaign else {}
        return [
            f"announce({key}={value!r}): {decided[key]!r} was planned. Train with what is planned "
            f"(Benchmark().hyperparameters has it), or plan it: benchmark.hyperparameters.{key}={value}."
            for key, value in values.items()
            if decided.get(key) is not None and value != decided[key]
        ]

    def _other_metrics(self, names: list[str]) -> list[str]:
        wanted = [threshold.metric for threshold in self._job.target.thresholds]
        if not names or set(wanted) <= set(names):
            return []
        return [
            f"{', '.join(names)} is reported, and the target is {self._job.target}: report {', '.join(wanted)}."
        ]

    def _refuse_missing(self, sizes: Mapping[str, int | None]) -> None:
        """Refuse a run that lacks something, with everything that it lacks. Micro-batches are accumulated by programs
        that say so."""
        from train_bench.rules.checks import demands

        rules, planned = self._job.rules, self._job.hyperparameters
        if ACCUMULATED not in self._announced and (ACCUMULATED in planned or demands(rules, ACCUMULATED)):
            self.announce(**{ACCUMULATED: 1})
        missing, reasons = sorted(planned.keys() - self._announced.keys()), []
        if missing:
            were = "was" if len(missing) == 1 else "were"
            reasons.append(
                f"run_start(): {', '.join(missing)} {were} planned and not announced; call announce() with what this "
                "program trains with."
            )
        reasons += self._explained(one for one in self._broken({}) if one.key not in missing)
        if not self._tensors and demands(rules, "weights_initialization"):
            reasons.append(
                "The rules want the names of the tensors that were initialised; call weights_initialized(NAME, ...) "
                "with them before init_stop()."
            )
        untold = [key for key, size in sizes.items() if size is None and demands(rules, key)]
        if untold and not (untold == ["train_samples"] and self._job.unit is Unit.SAMPLE):
            reasons.append(f"run_start() needs {' and '.join(untold)}, which the rules require in the log.")
        _refuse(reasons)

    def _broken(self, values: Mapping[str, Any]) -> list[Failure]:
        from train_bench.rules.checks import preflight

        said = {**self._all_announced(), **values}
        return preflight(self._job.rules, {key: value for key, value in said.items() if value is not None})

    def _explained(self, failures: Iterable[Failure]) -> list[str]:
        from train_bench.rules.explain import explain

        return list(dict.fromkeys(explain(failure) for failure in failures))

    def _tell_of_the_run(self) -> None:
        from train_bench.run import loaded_code, processors

        assert self._log is not None
        seen = processors.cpu_times_between(self._started_with, processors.read_cpu_times())
        self._log.processor_wait(processors.gather(self._ranks, seen))
        code = {"bytecode": loaded_code.changed_bytecode()}
        self._log.loaded_code(loaded_code.gather(self._ranks, code))
        loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in PACKAGES}
        versions = {name: str(version) for name, version in loaded.items() if version is not None}
        ran = self._ranks.describe() if self.knows_ranks else None
        self._log.values(
            {
                "written_by": f"train_bench.Benchmark {__version__}",
                "program_packages": {"python": platform.python_version(), **versions},
                **({"program_ranks": ran} if ran is not None else {}),
                **self._further,
            }
        )

    def _watch_the_end(self) -> None:
        """End the log on any exit of this process but SIGKILL."""
        atexit.register(self._end)
        if threading.current_thread() is threading.main_thread():
            handle_ending(self._terminated)

    def _end(self) -> None:
        if os.getpid() != self._process or self._clock is None or self._log is None:
            return  # a forked child ends by itself
        if not self.done:
            self._clock.abort()
        try:
            self._close()
        except WriteError as error:  # nobody catches what is raised at the exit
            sys.stderr.write(f"train_bench: {error}\n")

    def _terminated(self, number: int, _frame: FrameType | None) -> None:
        self._end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _close(self) -> None:
        assert self._log is not None
        atexit.unregister(self._end)
        try:
            self._log.close()
            if not self._job.of_campaign and self.rank == 0:
                self._job.log.replace(self._job.log.with_suffix(""))
        except OSError as error:
            raise cannot_write(self._job.log, error) from error


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        raise RequestError(" ".join(reasons))


def _samples(batch: Any) -> int:
    """Number of samples of a batch: the length of its first tensor."""
    while isinstance(batch, Mapping | list | tuple):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return len(batch)


def _number(value: Any) -> Any:
    """Numbers of other libraries (NumPy, tensors with one element) as Python numbers."""
    return value.item() if hasattr(value, "item") else value
