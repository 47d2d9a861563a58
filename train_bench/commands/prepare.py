"""Prepare the data of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench import campaign, files, machine
from train_bench.commands import campaigns
from train_bench.compose import Request
from train_bench.exit_codes import VALID


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    return campaigns.with_request("prepare", arguments, _prepare)


def _prepare(request: Request) -> int:
    campaigns.refuse_against(request)
    campaigns.refuse_command(request)
    source = request.config.source
    planned = campaigns.plan_of(request, to_be_run=False)
    machine.refuse_missing_packages(planned.jobs[0])
    campaign.prepare_data(planned, files.own_path(source) if source else None)
    print(f"The data of {planned.variant} are in {planned.jobs[0].config['data_dir']}.")
    return VALID
