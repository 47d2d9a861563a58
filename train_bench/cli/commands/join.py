"""Take part in a campaign that host 0 runs."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.campaign.join import take_part
from train_bench.cli import campaign_paths
from train_bench.cli.arguments import Parser
from train_bench.cli.conclude import say
from train_bench.cli.exit_codes import INVALID, VALID


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench join", description=__doc__, words=("launcher", "trust"), switches=("trust",))
    campaign_paths.add_campaign(parser)
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="launcher.OPTION=VALUE", help="which host this is"
    )
    options = parser.parse_args(arguments)
    good = take_part(options.folder, options.overrides, say)
    return VALID if good else INVALID
