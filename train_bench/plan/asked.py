"""A request beside the rules of its round, and what follows from both: the completed configuration, the announcement,
the number of runs, the evaluation schedule."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from train_bench.core import files
from train_bench.plan.disclosed import disclosed
from train_bench.plan.provenance import Provenance
from train_bench.plan.run_config import RunConfig
from train_bench.progress import EvalSchedule, Unit
from train_bench.rules.ruleset import BenchmarkRules
from train_bench.task import BenchmarkConfig


@dataclass(frozen=True)
class Asked:
    """The options, the rules of the benchmark, and the provenance of the plan to be. `reference_runs` is true for a
    reference convergence point, `to_be_run` for a plan that is carried out on this machine."""

    options: RunConfig
    rules: BenchmarkRules
    provenance: Provenance
    reference_runs: bool
    to_be_run: bool

    @cached_property
    def config(self) -> BenchmarkConfig:
        """The benchmark's configuration, completed with values of the rules and of the machine's user."""
        options, rules = self.options, self.rules
        config = options.benchmark.for_ranks(options.launcher.world_size)
        evaluation = config.evaluation
        due = rules.schedule_at(config.hyperparameters.global_batch_size)
        if due is not None:
            default = due.default()
            evaluation = replace(
                evaluation,
                first=default.first if evaluation.first is None else evaluation.first,
                period=default.period if evaluation.period is None else evaluation.period,
            )
        folder = (
            files.own_path(options.data_dir) if options.data_dir else self.provenance.cache / config.benchmark
        )
        return replace(config, evaluation=evaluation, data_dir=str(folder.resolve()))

    @cached_property
    def announcement(self) -> dict[str, Any]:
        """Values of the submitter and the machine to log before the clock."""
        options = self.options
        announcement = asdict(options.submission) | asdict(options.system)
        announcement["submission_benchmark"] = self.config.benchmark
        if options.deterministic:
            announcement["deterministic"] = True
        return announcement

    @cached_property
    def stated(self) -> dict[str, Any]:
        """Values that the rules want to be disclosed; a program announces its own."""
        options = self.options
        return dict(
            disclosed(
                self.rules,
                self.config,
                self.provenance.variant,
                launcher=options.launcher,
                precision=options.precision,
            )
        )

    @property
    def runs(self) -> int:
        """Number of runs."""
        if self.options.runs is not None:
            return self.options.runs
        return 2 * self.rules.runs if self.reference_runs else self.rules.runs

    @cached_property
    def schedule(self) -> EvalSchedule:
        """Evaluation schedule, of bounds that are given."""
        config, rules, evaluation = self.config, self.rules, self.config.evaluation
        assert evaluation.first is not None and evaluation.period is not None
        due = rules.schedule_at(config.hyperparameters.global_batch_size)
        in_epochs = rules.unit is Unit.EPOCH
        return EvalSchedule(
            first=evaluation.first,
            period=evaluation.period,
            until=evaluation.until,
            start=due.start if due else 0.0,
            samples_per_unit=(config.samples_per_epoch or 1) if in_epochs else 1,
            samples_count=rules.counted == "samples_count",
        )
