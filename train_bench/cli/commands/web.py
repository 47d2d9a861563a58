"""The pages of results for the browsers of this machine: history, campaigns also while they run, review.

What makes a page is imported when one is asked for, so that the server is there at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.cli import campaign_paths, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.errors import RequestError
from train_bench.judge.tree import Judged
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.web import pages, server
from train_bench.web.pages import Makers, folders_of

PORT = 8642


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _options(arguments)
    if options.folder is not None and not options.folder.is_dir():
        raise RequestError(f"There is no folder {options.folder}; give one of campaigns or rounds.")
    if options.ruleset is not None:
        ruleset.load(options.ruleset)  # raises UnknownName
    store = discover.store(options.store)
    if options.folder is None or options.store is not None:
        folders_of(store)  # raises where there is no store
    with server.Server(Pages(options.folder, store, options.ruleset), options.port) as served:
        try:
            print(f"http://{server.ADDRESS}:{served.server_port}/ until Ctrl-C.", flush=True)
            served.serve_forever()
        except KeyboardInterrupt:
            print("Ended.")
    return VALID


def _history(store: Path, addresses: Mapping[str, str]) -> str:
    from train_bench.cli.commands.history import page_of

    return page_of(store, [], pages=addresses)


def _review(folder: Path, named: str | None) -> dict[str, Any]:
    from train_bench.cli.commands.review import reviewed

    return reviewed([folder], named)[0]


def _judged(folder: Path, named: str | None) -> Judged:
    from train_bench.cli import judge_options

    return judge_options.judged_tree((folder,), named)


MAKERS = Makers(history=_history, review=_review, judged=_judged)


class Pages(pages.Pages):
    """Served pages, as the verbs of this program make them."""

    def __init__(self, folder: Path | None, store: Path, ruleset: str | None) -> None:
        super().__init__(folder, store, ruleset, MAKERS)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "train-bench web",
        description="Serve the pages of results on 127.0.0.1, to be read by all users of this machine: the history of "
        "a store, the campaigns of a folder or of the store (those that run are shown as they go on), two of them "
        "beside each other, and the review of a folder. Ends with Ctrl-C.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=campaign_paths.one,
        metavar="DIR",
        help="campaigns, rounds or folders above; without it the latest results of the store",
    )
    shared_options.add_store(parser)
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help=f"{PORT} without it; 0: any that is free"
    )
    shared_options.add_ruleset(parser)
    return parser.parse_args(arguments)
