"""Prepare the data of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.campaign import data, refusals
from train_bench.campaign.opened import Campaign
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
    campaign = Campaign.planned(request, to_be_run=False)
    refusals.refuse(campaign, [refusals.packages])
    data.prepare(campaign, files.own_path(source) if source else None)
    content = {"benchmark": campaign.plan.variant, "data_dir": campaign.first.config["data_dir"]}
    return Answer(content=content, show=_show)


def _show(content: Mapping[str, Any], console: Console) -> None:
    print_line(console, f"The data of {content['benchmark']} are in {content['data_dir']}.")
