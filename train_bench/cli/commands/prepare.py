"""Prepare the data of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.campaign import preflight, runner, start
from train_bench.cli import composing
from train_bench.cli.exit_codes import VALID
from train_bench.core import files
from train_bench.plan.request import Request


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    return composing.with_request("prepare", arguments, _prepare)


def _prepare(request: Request) -> int:
    request.refuse_against()
    request.refuse_command()
    source = request.config.source
    planned = start.plan_of(request, to_be_run=False)
    preflight.refuse_missing_packages(planned.jobs[0])
    runner.prepare_data(planned, files.own_path(source) if source else None)
    print(f"The data of {planned.variant} are in {planned.jobs[0].config['data_dir']}.")
    return VALID
