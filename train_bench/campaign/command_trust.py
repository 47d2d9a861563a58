"""Trust in a plan. A plan may be anybody's file, and carrying it out can start a command, submit jobs, reach hosts or
start any number of processes: only for plans that this user has begun or trusted before, by the digest of the plan."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

from train_bench.campaign.opened import Campaign
from train_bench.core import begun_plans, files
from train_bench.core.job import Command, Job, plan_digest
from train_bench.energy.meter import IDLE_SECONDS
from train_bench.errors import RequestError
from train_bench.observers.tracking import NONE
from train_bench.plan.run_config import TRAITS

HARMLESS = ("name", "nodes", "nproc_per_node", "threads_per_rank")
"""Options of every launcher; the effect on hosts and ranks is stated without them."""


def note(campaign: Campaign) -> None:
    """Remember the plan of a campaign that this user begins, if it has external effects or a benchmark outside of
    train_bench. Where it cannot be remembered, resuming requires trust."""
    digest = plan_digest(campaign.content)
    if external_effects(campaign):
        begun_plans.remember(begun_plans.TRUSTED, digest)
    if campaign.first.reference_folder is not None:
        begun_plans.remember(begun_plans.BEGUN, digest, campaign.first.reference_folder)


def refuse(campaign: Campaign, *, trusted: bool) -> None:
    """Raise `RequestError`, which shows the external effects, for a campaign that this user has not begun. One that is
    `trusted` now is remembered."""
    effects = external_effects(campaign)
    digest = _digest(campaign.folder)
    if not effects or begun_plans.is_remembered(begun_plans.TRUSTED, digest):
        return
    if not trusted:
        raise RequestError(
            f"The campaign in {campaign.folder} reaches beyond this process in a way that you have not started or "
            f"trusted before: {', and '.join(effects)}. Add trust=true to allow it."
        )
    begun_plans.remember(begun_plans.TRUSTED, digest)


def external_effects(campaign: Campaign) -> list[str]:
    """Effects of a plan outside the ranks of one host, for display: the programs that it starts, its launcher's queue,
    hosts, ranks and options, caches of this host, and trackers."""
    job, request = campaign.first, campaign.plan.request
    effects = [*_programs(campaign)]
    effects += (effect for effect in _energy_effects(campaign) if effect not in effects)
    effects += launcher_effects(campaign)
    effects += _process_effects(job)
    if job.drop_caches:
        effects.append("drop_caches=true")
    tracking = request.get("tracking") or NONE
    if tracking not in (NONE, [NONE]):
        online = ", tracking_online=true" if request.get("tracking_online") else ""
        effects.append(f"tracking={tracking}{online}")
    return effects


def _programs(campaign: Campaign) -> Iterator[str]:
    """Programs that the plan names: every option that has one."""
    for name, traits in TRAITS.items():
        if traits.program:
            value = getattr(campaign.first, name) if traits.in_jobs else campaign.plan.request.get(name)
            if isinstance(value, Command):
                yield f"{shlex.join(value.argv)} (in {value.cwd})"
            elif value is not None:
                yield f"{name}={value}"


def refuse_launcher(campaign: Campaign, work: str) -> None:
    """Raise `RequestError` for `work` that would start ranks by the launcher of a campaign that this user has not
    begun or trusted."""
    remedy = "Name the launcher here, for example launcher=inline."
    _refuse_untrusted(f"{work} would start ranks", launcher_effects(campaign), campaign.folder, remedy)


def refuse_settlement(campaign: Campaign) -> None:
    """Raise `RequestError` where settling a campaign that this user has not begun or trusted would delete its job."""
    if campaign.runs_elsewhere:
        _refuse_untrusted("settle would delete a job", launcher_effects(campaign), campaign.folder)


def refuse_processes(job: Job, work: str) -> None:
    """Raise `RequestError` for `work` that would start more loader processes or threads than this host has processors,
    for a run of a campaign that this user has not begun or trusted."""
    _refuse_untrusted(f"{work} would start processes", _process_effects(job), job.folder)


def refuse_energy(campaign: Campaign, work: str) -> None:
    """Raise `RequestError` for `work` that would start the energy command of a campaign that this user has not begun or
    trusted, or wait for its idle measurement, and for invalid energy options."""
    _refuse_untrusted(f"{work} would measure energy", _energy_effects(campaign), campaign.folder)


def _refuse_untrusted(work: str, effects: Sequence[str], folder: Path, remedy: str | None = None) -> None:
    """Raise `RequestError` for work with these effects, unless the campaign is trusted; by default trusting it is the
    remedy."""
    if effects and not begun_plans.is_remembered(begun_plans.TRUSTED, _digest(folder)):
        trusting = (
            f"train-bench run resume={folder} trust=true allows it, and carries out runs that have no result "
            "yet."
        )
        raise RequestError(
            f"{work} as the campaign in {folder} says, which you have neither started nor trusted before: "
            f"{', '.join(effects)}. {remedy or trusting}"
        )


def _energy_effects(campaign: Campaign) -> list[str]:
    """Energy command, and an idle measurement that takes longer than the default."""
    wished = campaign.energy
    if wished is None:
        return []
    effects = [] if wished.command is None else [f"energy_command={wished.command}"]
    if wished.idle_seconds > IDLE_SECONDS:
        effects.append(f"energy_idle='{wished.idle_seconds:g} s'")
    return effects


def launcher_effects(campaign: Campaign) -> list[str]:
    """The launcher with its options, if it starts more than one rank on this host."""
    job, given = campaign.first, _given_options(campaign)
    if job.world_size == 1 and campaign.launcher_is_shipped and not given and campaign.queue is None:
        return []
    options = f" ({', '.join(given)})" if given else ""
    queue = "" if campaign.queue is None else " in its queue"
    return [f"launcher={job.launcher} with {job.world_size} rank(s) on {job.nodes} host(s){queue}{options}"]


def _process_effects(job: Job) -> list[str]:
    """Loader processes or threads of a rank, if they are more than this host has processors."""
    here = os.cpu_count() or 1
    counts = (("loader processes", _loader_processes(job.config)), ("threads", job.threads_per_rank or 0))
    return [f"{count} {what} in each rank ({here} processors here)" for what, count in counts if count > here]


def _loader_processes(config: Mapping[str, Any]) -> int:
    """Largest number of `workers` in a configuration."""
    inside = (_loader_processes(value) for value in config.values() if isinstance(value, Mapping))
    own = config.get("workers")
    return max([own if isinstance(own, int) else 0, *inside])


def _given_options(campaign: Campaign) -> list[str]:
    """Options of the plan's launcher that differ from its defaults."""
    options, given = campaign.first.launcher_config, []
    for field in fields(campaign.launcher_config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = options.get(field.name, default)
        if field.name not in HARMLESS and value != _as_written(default):
            given.append(f"launcher.{field.name}={value}")
    return given


def _as_written(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _digest(folder: Path) -> str:
    return plan_digest(files.read_json(folder / "plan.json"))
