"""Record both sides of a comparison: start the ranks of each, with its weights, rounding and revision."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_bench.campaign import data, rank_job
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import Precision
from train_bench.core.variables import variable
from train_bench.equivalence import compare, recording
from train_bench.equivalence.sides import (
    COARSE,
    DOUBLE,
    DRAWS,
    UNITS,
    A,
    B,
    Settings,
    Side,
    again,
    inner,
    pair_of,
)
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch
from train_bench.plan import process
from train_bench.plan.discover import ROOT
from train_bench.plan.request import Request


def record_sides(request: Request, b: Side | None, folder: Path, settings: Settings) -> compare.Pair | None:
    """Record A, its twins and `b`, in processes of their own. None without `b`."""
    planned = Campaign.planned(replace(request, against=None), to_be_run=False)
    other = Campaign.planned(request.against, to_be_run=False) if request.against else planned
    for one in (planned, other):
        rank_job.refuse(one, "equivalent")
        if one.first.launcher_config.get("tensor_parallel", 1) > 1:
            raise RequestError(
                "equivalent compares ranks that take samples of their own; leave launcher.tensor_parallel out."
            )
        if one.first.launcher_config.get("zero_stage") == 3:
            raise RequestError(
                "equivalent looks at weights behind every step, which launcher.zero_stage=3 has whole for evaluations "
                "alone; use launcher.zero_stage=2 or launcher.shard=fsdp."
            )
        if not settings.synthetic:
            data.prepare(one)
    coarser = max(UNITS[one.first.precision] for one in (planned, other))
    work = {
        "steps": settings.steps,
        "seeds": settings.seeds,
        "data": "synthetic" if settings.synthetic else "real",
        "start": None,
    }
    if b is not None and b.model is not None:
        _refuse_ranks_beside_a_model(planned)
        work["given"] = True
    _record(planned, work | {"whole": True}, folder / A)
    threads = 2 if planned.first.threads_per_rank == 1 else 1
    _record(planned, work | {"unit": coarser}, folder / "rounding")
    _record(_changed(planned, threads_per_rank=threads), work, folder / "threads")
    if planned.first.world_size == 1:  # weights that become wider would drop out of what ranks average
        with contextlib.suppress(LaunchError):  # not every layer exists in double precision
            _record(_changed(planned, precision=Precision.fp32), work | {"double": True}, folder / DOUBLE)
    if b is None:
        return None
    recorded = folder / B
    from_start: dict[str, Any] | None = None
    if b.folder is not None:
        recorded = inner(b.folder)
    elif b.model is not None and b.names is not None:
        shapes = recording.read(folder / A).facts["shapes"]
        ours = {
            name.partition("/")[2]: shape for name, shape in shapes.items() if name.startswith("parameters/")
        }
        names = str(files.own_path(b.names).resolve())
        given = {"model": b.model, "names": names, "given": str(folder / A), "shapes": ours}
        _record(other, work | given, recorded)
    else:
        weights = folder / "start.npz"
        recording.write_start(recording.read(folder / A), weights)
        other = _changed(other, seed=planned.first.seed)
        from_start = work | {"start": str(weights)}
        with _checkout(b.revision) as checkout, _first_on_path(checkout):
            _record(other, from_start | {"whole": True}, recorded)
    pair = pair_of(folder, recorded, coarser)
    if not compare.is_near(compare.run_checks(pair, settings.rungs)):
        return pair
    for draw in DRAWS:
        _record(planned, work | {"unit": coarser, "draw": draw}, folder / again(A, draw))
    _record(planned, work | {"unit": compare.COARSE * coarser}, folder / COARSE)
    if from_start is not None:
        with _checkout(b.revision) as checkout, _first_on_path(checkout):
            for draw in DRAWS:
                _record(other, from_start | {"unit": coarser, "draw": draw}, folder / again(B, draw))
    return pair_of(folder, recorded, coarser)


def _refuse_ranks_beside_a_model(planned: Campaign) -> None:
    job = planned.first
    if job.world_size > 1 or job.config["hyperparameters"]["gradient_accumulation_steps"] > 1:
        raise RequestError(
            "model= is compared with one rank that takes a batch whole; leave ranks and accumulation out."
        )


def _changed(planned: Campaign, **values: Any) -> Campaign:
    return planned.with_job(replace(planned.first, **values))


def _record(planned: Campaign, work: dict[str, Any], folder: Path) -> None:
    rank_job.carry_out(planned, "record", work, folder)


@contextlib.contextmanager
def _checkout(revision: str | None) -> Iterator[Path | None]:
    """A worktree of a revision, for as long as it is needed."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="train_bench_revision_") as parent:
        folder = Path(parent) / "checkout"
        git = ("git", "-C", str(ROOT), "worktree")
        try:
            process.answer(Launch(argv=(*git, "add", "--detach", str(folder), revision)))
        except LaunchError as error:
            raise RequestError(f"revision={revision} cannot be had from {ROOT}: {error}") from error
        try:
            if not (folder / "train_bench" / "equivalence" / "record.py").is_file():
                raise RequestError(
                    f"revision={revision} is from before train-bench could record; choose a later one, or compare the "
                    f"results of campaigns."
                )
            yield folder
        finally:
            process.answer(Launch(argv=(*git, "remove", "--force", str(folder))))


@contextlib.contextmanager
def _first_on_path(folder: Path | None) -> Iterator[None]:
    """Processes that are started import what lies there before all else."""
    if folder is None:
        yield
        return
    before = os.environ.get("PYTHONPATH")
    with variable("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), before)))):
        yield
