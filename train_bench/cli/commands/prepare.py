"""Prepare the data of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.campaign import preflight, runner, start
from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.core import files
from train_bench.plan.request import Request
from train_bench.report.console import print_line


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = composing.parse(composing.OverrideParser("prepare"), arguments)
    return composing.with_request("prepare", options, overrides, _prepare)


def _prepare(request: Request) -> Answer:
    source = request.config.source
    planned = start.plan_of(request, to_be_run=False)
    preflight.refuse_missing_packages(planned.jobs[0])
    runner.prepare_data(planned, files.own_path(source) if source else None)
    return Answer(
        content={"benchmark": planned.variant, "data_dir": planned.jobs[0].config["data_dir"]}, show=_show
    )


def _show(content: Mapping[str, Any], console: Console) -> None:
    print_line(console, f"The data of {content['benchmark']} are in {content['data_dir']}.")
