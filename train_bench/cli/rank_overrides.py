"""Options of verbs that load kept weights: where the ranks are started that do it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from train_bench.campaign import command_trust
from train_bench.campaign.opened import Campaign, code_of_this_host
from train_bench.cli import campaign_paths
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.plan.request import Request

OTHER_RANKS = ("launcher", "device", "data_dir")
"""Options that change where weights are evaluated, and not what they are."""


def add_arguments(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add `folder`, the campaign with the weights, and `overrides`: where to start ranks for this `purpose`."""
    campaign_paths.add_campaign(parser, what=" with kept weights")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="launcher=NAME",
        help=f"and launcher.OPTION=VALUE, device=, data_dir=: {purpose}; by default as it was trained",
    )


def refuse_others(verb: str, words: Sequence[str]) -> None:
    """Raise `RequestError` for a word that is no such option."""
    for word in words:
        if word.partition("=")[0].partition(".")[0] not in OTHER_RANKS or "=" not in word:
            raise RequestError(
                f"'{word}' is not an option of {verb}, which takes launcher=, launcher.OPTION=, device= and data_dir=."
            )


def with_ranks(campaign: Campaign, request: Request, overrides: Sequence[str], verb: str) -> Campaign:
    """The campaign, whose ranks are started as the overrides have it. Code is taken from where it lies here."""
    named = {word.partition("=")[0].partition(".")[0] for word in overrides}
    planned, job = campaign.plan, campaign.first
    changes: dict[str, Any] = {}
    if "launcher" not in named:
        command_trust.refuse_launcher(campaign, verb)
        command_trust.refuse_processes(job, verb)
    else:
        command_trust.refuse_processes(replace(job, threads_per_rank=None), verb)
        launcher = request.config.launcher
        changes |= {
            "launcher": launcher.name,
            "launcher_config": asdict(launcher),
            "nodes": launcher.nodes,
            "nproc_per_node": launcher.nproc_per_node,
            "threads_per_rank": launcher.threads_per_rank,
        }
    if "device" in named:
        changes["device"] = request.config.device
    if "data_dir" in named:
        folder = files.resolved(files.own_path(str(request.config.data_dir)))
        changes["config"] = {**job.config, "data_dir": str(folder)}
    changes |= code_of_this_host(job.reference, changes.get("launcher", job.launcher))
    jobs = tuple(replace(one, **changes) for one in planned.jobs)
    changed = Campaign.of(
        replace(planned, launcher=jobs[0].launcher, world_size=jobs[0].world_size, jobs=jobs)
    )
    reason = changed.launcher.refuse(changed.benchmark)
    if reason is not None:
        raise RequestError(reason)
    return changed
