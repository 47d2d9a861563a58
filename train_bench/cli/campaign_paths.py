"""Campaigns and other results as they are typed: a path, a pattern (`nights/*`), the number of a campaign here, or
`latest`. Verbs get paths."""

from __future__ import annotations

import argparse
import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import catalogue
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.judge.locate import campaign_of

LATEST = "latest"
LIST = "train-bench list campaigns"
HELP = f"or the number of a campaign, or {LATEST} ({LIST})"


def expand(word: str) -> list[Path]:
    """Paths that a word stands for; an existing path is itself, whatever it looks like (a campaign's plan, score,
    record or page is the campaign), and a pattern that matches
    folders stands for these alone: campaigns have pages beside them. Raises `RequestError` for a
    number without a campaign, for a pattern without a match and for an invalid path."""
    if _exists(word):
        return [campaign_of(Path(word))]
    if word == LATEST or re.fullmatch(r"\d+", word, re.ASCII):
        return [_numbered(word)]
    if glob.has_magic(word):
        found = sorted(glob.glob(word))  # noqa: PTH207 the pattern may be absolute
        matching = list(map(Path, found))
        if not matching:
            raise RequestError(f"Nothing matches '{word}'; give folders, or a pattern of some that exist.")
        return [path for path in matching if path.is_dir()] or matching
    return [Path(word)]


def one(word: str) -> Path:
    """The one path that a word stands for. Raises `RequestError` as `expand`, and for a pattern of several."""
    matching = expand(word)
    if len(matching) > 1:
        raise RequestError(f"'{word}' matches {len(matching)} paths; give one of them.")
    return matching[0]


class Expand(argparse.Action):
    """Argument of several words; its value is the list of all paths that they stand for."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        words: Sequence[str] = values
        setattr(namespace, self.dest, [path for word in words for path in expand(word)])


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `paths`, the results that a verb takes."""
    parser.add_argument(
        "paths",
        nargs="+",
        action=Expand,
        metavar="PATH",
        help=f"logs, campaigns, any folders above, patterns of such, {HELP}",
    )


def add_campaign(parser: argparse.ArgumentParser, *, optional: bool = False, what: str = "") -> None:
    """Add `folder`, the one campaign that a verb takes; None where it is `optional` and left out. `what` it has to be
    ends its help."""
    parser.add_argument(
        "folder",
        nargs="?" if optional else None,
        type=one,
        metavar="CAMPAIGN",
        help=f"folder of a campaign{what}, {HELP}",
    )


def _exists(word: str) -> bool:
    try:
        return files.resolved(Path(word)).exists()
    except OSError:  # a name that is too long
        return False


def _numbered(word: str) -> Path:
    listed = catalogue.find_campaigns(Path(), verdicts=False)
    if not listed:
        raise RequestError(
            f"'{word}' means a campaign below this folder, and there is none here; give a path."
        )
    number = len(listed) if word == LATEST else int(word)
    if not 1 <= number <= len(listed):
        raise RequestError(
            f"There is no campaign {number} here; they are numbered 1 to {len(listed)} ({LIST})."
        )
    return listed[number - 1].folder
