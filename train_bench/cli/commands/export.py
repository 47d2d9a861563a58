"""Write a finished campaign as one file that others can check and repeat (train-bench replay)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench.campaign.opened import Campaign
from train_bench.cli import campaign_paths
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.core import files
from train_bench.exchange.export import export


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench export", description=__doc__)
    campaign_paths.add_campaign(parser)
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="new file, a zip")
    parser.add_argument(
        "--sign", type=Path, metavar="KEY", help="private SSH key to sign it with (ssh-keygen -Y)"
    )
    options = parser.parse_args(arguments)
    with files.valid_content(f"The campaign in {options.folder}"):
        root = export(Campaign.open(options.folder).plan, options.to, options.sign)
    print(f"The campaign is in {options.to}, root {root}.")
    return VALID
