"""Forecasts of what a request would train: at a stated pace, or at that of a probe, which is run here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace

from train_bench.campaign import start
from train_bench.campaign.opened import Campaign
from train_bench.errors import RequestError
from train_bench.forecast import log_pace, samples
from train_bench.forecast.case import Case
from train_bench.forecast.samples import Samples
from train_bench.forecast.simulate import Pace
from train_bench.logs.record import read_record
from train_bench.plan.request import Request
from train_bench.progress import Unit

PROBE_SHARE = 0.2
"""Share of the evaluations that a run is expected to need which is run to measure the pace."""


def case_of_throughput(request: Request, throughput: float, evaluation_seconds: float | None) -> Case:
    """Case of what a request would train, at a stated pace."""
    planned = Campaign.planned(request, to_be_run=False)
    per_unit = _samples_per_unit(planned)
    if per_unit is None:
        raise RequestError(
            f"{planned.plan.variant} counts {planned.first.unit.value}s, of which nothing says how many samples they "
            f"train on; leave --throughput out, and a probe measures the pace."
        )
    return _planned(planned, log_pace.stated(throughput, evaluation_seconds, per_unit))


def case_of_probe(
    request: Request, blocks: int | None, say: Callable[[str], None], warn: Callable[[str], None]
) -> Case:
    """Case of what a request would train, by the pace of the first blocks of one run: they are run in a folder of their
    own and are not a result. Progress is printed on standard error."""
    planned = Campaign.planned(request, to_be_run=False)
    if planned.queue is not None and not planned.queue.wait:
        raise RequestError(
            "A probe is measured at once, and this launcher hands it to a queue and returns; add launcher.wait=true, "
            "or give a campaign that was run there with --from."
        )
    of_reference = _expected(planned)
    schedule = of_reference.schedule
    blocks = blocks or _blocks(of_reference)
    request.config.runs = 1
    request.config.benchmark.evaluation.until = schedule.first + (blocks - 1) * schedule.period
    with contextlib.redirect_stdout(sys.stderr):  # what is printed is the forecast
        folder = start.carry_out(request, say, warn)
    assert folder is not None  # it was waited for
    record, log = read_record(folder / "result_0.txt", planned.rules)
    return _planned(
        planned, log_pace.pace([log_pace.measure(record, log, planned.rules)], "probe", str(folder))
    )


def _blocks(of_reference: Samples) -> int:
    """As many as fit into a fifth of what a run is expected to need."""
    schedule = of_reference.schedule
    evaluations = 1 + (of_reference.mean() - schedule.first) / schedule.period
    return max(1, int(PROBE_SHARE * evaluations))


def _planned(planned: Campaign, pace: Pace) -> Case:
    return Case(
        name=planned.plan.variant,
        rules=planned.rules,
        points=planned.points,
        of_reference=_expected(planned),
        pace=pace,
        ranks=planned.plan.world_size,
        batch_size=planned.first.config["hyperparameters"]["global_batch_size"],
        samples_per_unit=_samples_per_unit(planned),
    )


def _expected(planned: Campaign) -> Samples:
    """Samples that the reference needs, up to where the plan's own schedule ends."""
    size = planned.first.config["hyperparameters"]["global_batch_size"]
    return replace(samples.expect(planned.points, planned.rules, size), schedule=planned.first.schedule)


def _samples_per_unit(planned: Campaign) -> float | None:
    job = planned.first
    if job.unit is Unit.STEP:
        return float(job.config["hyperparameters"]["global_batch_size"])
    return float(job.schedule.samples_per_unit) if job.unit in (Unit.EPOCH, Unit.SAMPLE) else None
