"""Prepare the data of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.campaign import preflight, runner
from train_bench.cli import campaign_request
from train_bench.cli.exit_codes import VALID
from train_bench.cli.hydra_app import Request
from train_bench.core import files


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    return campaign_request.with_request("prepare", arguments, _prepare)


def _prepare(request: Request) -> int:
    campaign_request.refuse_against(request)
    campaign_request.refuse_command(request)
    source = request.config.source
    planned = campaign_request.plan_of(request, to_be_run=False)
    preflight.refuse_missing_packages(planned.jobs[0])
    runner.prepare_data(planned, files.own_path(source) if source else None)
    print(f"The data of {planned.variant} are in {planned.jobs[0].config['data_dir']}.")
    return VALID
