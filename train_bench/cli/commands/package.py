"""Lay finished campaigns out as a submission, and ask our judge and the official checkers about it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.cli import campaign_paths
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core import files, software
from train_bench.core.git import differing, revision
from train_bench.core.progress_bar import bar
from train_bench.plan import discover
from train_bench.report.console import make_console, print_line
from train_bench.submission import description
from train_bench.submission import package as packaging


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench package", description=__doc__)
    parser.add_argument(
        "campaigns",
        nargs="+",
        action=campaign_paths.Expand,
        metavar="CAMPAIGN",
        help=f"folders of campaigns, patterns of such, {campaign_paths.HELP}",
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="new folder for the tree")
    parser.add_argument("--system", metavar="NAME", help="name of the system; by default the platform's")
    parser.add_argument(
        "--system-file",
        type=Path,
        metavar="FILE",
        help='what nothing detects of the system, as a JSON object of texts: {"cooling": "air"}. Fields: '
        + ", ".join(description.FIELDS),
    )
    parser.add_argument("--force", action="store_true", help="package invalid results all the same")
    options = parser.parse_args(arguments)
    stated = description.read_stated(options.system_file) if options.system_file else {}
    with files.valid_content(f"A campaign of {', '.join(map(str, options.campaigns))}"):
        return _package(options, stated)


def _package(options: argparse.Namespace, stated: Mapping[str, str]) -> int:
    campaigns = [
        packaging.read_campaign(folder, discover.rcp_folders())
        for folder in bar(options.campaigns, "judging")
    ]
    source = packaging.Source(
        root=discover.ROOT,
        revision=revision(discover.ROOT),
        differing=differing(discover.ROOT),
        digest=software.digest_of_sources(),
    )
    folder = packaging.package(
        campaigns, options.to, system=options.system, stated=stated, source=source, force=options.force
    )
    console = make_console()
    print_line(console, f"The submission is in {folder}.")
    for path, fields in packaging.empty_fields(folder).items():
        told = ", ".join(fields)
        print_line(
            console,
            f"{path} has no text where nothing detects one: {told}. State them with --system-file FILE.",
        )
    refused = False
    for said in packaging.opinions(folder, campaigns[0].judgement.score.ruleset, discover.rcp_folders()):
        print_line(console, f"{said.checker}: {said.verdict}{f' ({said.message})' if said.message else ''}")
        refused = refused or said.refused
    return INVALID if refused else VALID
