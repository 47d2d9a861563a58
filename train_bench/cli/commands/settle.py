"""Record what became of a submitted campaign, judge it and score it."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.campaign import batch_queue, command_trust
from train_bench.campaign.opened import Campaign
from train_bench.cli import campaign_paths, composing
from train_bench.cli.arguments import Parser
from train_bench.cli.conclude import conclude
from train_bench.core import files
from train_bench.errors import RequestError


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench settle", description=__doc__)
    campaign_paths.add_campaign(parser)
    parser.add_argument(
        "--store", metavar="FILE", help="put the score into this store, too (see train-bench index)"
    )
    composing.answer_options(parser)
    options = parser.parse_args(arguments)
    composing.refuse_file(options.to)
    folder = files.resolved(options.folder)
    campaign = Campaign.open(folder)
    queue = campaign.queue
    if queue is None or not batch_queue.was_submitted(folder):
        raise RequestError(
            f"The campaign in {folder} was not submitted to a batch system. train-bench run resume={folder} carries "
            f"out what is missing, train-bench judge {folder} judges what is there."
        )
    command_trust.refuse_settlement(campaign)
    batch_queue.settle(queue, folder)
    return composing.answer(lambda: conclude(folder, options.store), options)
