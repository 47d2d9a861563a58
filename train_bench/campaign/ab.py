"""A/B campaigns: two campaigns that alternate on one machine, `DIR/a` as requested, `DIR/b` with the overrides of
`against=`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from train_bench.campaign import begin, refusals
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import Job
from train_bench.errors import Interrupted, LaunchError, RequestError
from train_bench.plan.request import Request

SIDES = ("a", "b")


def folders(folder: Path) -> tuple[Path, ...]:
    """Folders of the two campaigns in that of the pair."""
    return tuple(folder / side for side in SIDES)


def holds_pair(folder: Path) -> bool:
    """True if the folder holds two campaigns."""
    return all((path / "plan.json").is_file() for path in folders(folder))


def to_compare(paths: Sequence[Path]) -> list[Path]:
    """Folders to compare: those given, or the two campaigns of the one pair that is given.

    Raises `RequestError` for a single campaign, a pair among others, and a folder given twice.
    """
    pairs = [path for path in paths if holds_pair(path)]
    if len(paths) == len(pairs) == 1:
        return list(folders(paths[0]))
    if pairs:
        one, other = folders(pairs[0])
        raise RequestError(
            f"{pairs[0]} is a pair of campaigns. Compare them by train-bench compare {pairs[0]}, or give "
            f"one of them, {one} or {other}."
        )
    if len(paths) == 1:
        raise RequestError(f"{paths[0]} is a single campaign; give a second one to compare it with.")
    given: dict[Path, Path] = {}
    for path in paths:
        if given.setdefault(files.resolved(path), path) is not path:
            raise RequestError(f"{path} is given twice; give two different campaigns.")
    return list(paths)


def refuse(a: Campaign, b: Campaign) -> None:
    """Raise `RequestError` if the times of the two cannot be compared."""
    for what, one, other in (
        ("benchmark", a.plan.benchmark, b.plan.benchmark),
        ("target", a.first.target, b.first.target),
    ):
        if one != other:
            raise RequestError(
                f"against= changes the {what} from {one} to {other}; times are comparable only at the same "
                f"{what}."
            )


def take_turns(
    todo: Sequence[Sequence[Job]], campaigns: Sequence[Generator[Job, None, None]], folder: Path
) -> None:
    """Carry out both campaigns run by run, a b b a a b ..., so that a drift of the machine affects both alike. Each
    of `campaigns` does one run of its pending jobs per step."""
    turns = sorted(
        (job.index, (side + job.index) % len(SIDES), side) for side, jobs in enumerate(todo) for job in jobs
    )
    try:
        for _, _, side in turns:
            next(campaigns[side])
        for campaign in campaigns:
            for _ in campaign:  # to its end, which notifies the observers
                pass
    except (LaunchError, Interrupted) as error:
        continued = f"train-bench run resume={folder} continues both campaigns."
        raise type(error)(f"{str(error).rstrip('.')}. {continued}") from error
    finally:
        for campaign in campaigns:
            campaign.close()


def begin_or_resume(request: Request, warn: Callable[[str], None]) -> tuple[Path, list[Campaign]]:
    """Begin two new campaigns, or resume two; returns them and the folder that holds them."""
    config = request.config
    if config.resume is not None:
        folder = files.resolved(Path(config.resume))
        return folder, [begin.resume(request, path, warn) for path in folders(folder)]
    assert request.against is not None
    both = [Campaign.planned(request), Campaign.planned(request.against)]
    refuse(*both)
    folder = both[0].folder
    sides = [_moved(campaign, path) for campaign, path in zip(both, folders(folder), strict=True)]
    for campaign in sides:
        refusals.refuse(campaign, [_other_machines, *refusals.REFUSALS])
    for campaign in sides:
        begin.set_up(campaign)
    return folder, sides


def _other_machines(campaign: Campaign) -> Iterator[str]:
    if campaign.launcher_config.joining or campaign.queue is not None:
        yield (
            f"against= alternates on this machine only, but launcher={campaign.plan.launcher} uses other hosts; choose "
            f"launcher=inline or torchrun on one host."
        )


def _moved(campaign: Campaign, folder: Path) -> Campaign:
    jobs = tuple(replace(job, folder=folder) for job in campaign.jobs)
    return replace(campaign, plan=replace(campaign.plan, jobs=jobs))
