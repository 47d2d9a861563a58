"""One planned run of a benchmark for the programs of bench/ and tools/, with an unreachable target, so that it goes on
for as long as requested. Whoever imports it can import the tests as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from train_bench.campaign import data
from train_bench.campaign.opened import Campaign
from train_bench.core import software
from train_bench.plan import discover
from train_bench.plan.plan import Plan, make_plan
from train_bench.plan.provenance import Provenance
from train_bench.plan.run_config import register
from train_bench.progress import EvalSchedule
from train_bench.quality import Target, Threshold
from train_bench.rules import ruleset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def composed(overrides: Sequence[str]) -> Any:
    """The configuration of a single run with seed 1 and overrides such as `benchmark=resnet_mini`."""
    register()
    with initialize_config_dir(str(discover.CONF), version_base="1.3"):
        return OmegaConf.to_object(compose("config", overrides=[*overrides, "runs=1", "seed=1"]))


def plan_of(config: Any, variant: str) -> Plan:
    """The plan of a configuration, made by nobody's revision and beside no reference points."""
    provenance = Provenance(
        now=datetime.now(UTC),
        version="bench",
        revision=None,
        software=software.describe(),
        points_digest=None,
        variant=variant,
        cache=discover.cache(),
    )
    rules = ruleset.load(config.benchmark.ruleset).benchmark(config.benchmark.benchmark)
    return make_plan(config, rules, provenance, reference_runs=False)


def first(evaluations: int) -> Callable[[EvalSchedule], EvalSchedule]:
    """A schedule that ends with this many evaluations."""
    return lambda schedule: replace(schedule, until=schedule.first + (evaluations - 1) * schedule.period)


def one_run(overrides: Sequence[str], evaluated: Callable[[EvalSchedule], EvalSchedule]) -> Plan:
    """The plan of a single run with prepared data. `evaluated` chooses when it is evaluated, given the benchmark's
    own schedule; the run ends with the last of them."""
    config = composed(overrides)
    plan = plan_of(
        config, next(word.partition("=")[2] for word in overrides if word.startswith("benchmark="))
    )
    data.prepare(Campaign.of(plan))
    job = plan.jobs[0]
    never = Target(thresholds=tuple(_beyond_reach(config) for config in job.target.thresholds))
    return replace(plan, jobs=(replace(job, target=never, schedule=evaluated(job.schedule)),))


def _beyond_reach(threshold: Threshold) -> Threshold:
    """Metrics are shares or rates of errors: none is above 1 where higher is better, none is below 0."""
    return replace(threshold, value=2.0 if threshold.higher_is_better else -1.0)
