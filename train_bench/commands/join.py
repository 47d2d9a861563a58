"""Take part in a campaign that host 0 runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from train_bench.exit_codes import INVALID, VALID
from train_bench.join import take_part


def main(words: Sequence[str]) -> int:
    """The command: its words to its exit code."""
    parser = argparse.ArgumentParser("train-bench join", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the campaign")
    parser.add_argument("words", nargs="*", metavar="launcher.OPTION=VALUE", help="which host this is")
    options = parser.parse_args(words)
    good = take_part(options.folder, options.words, lambda text: print(text, flush=True))
    return VALID if good else INVALID
