"""A game of Go that self-play has left behind, as a board."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from train_bench.exit_codes import VALID
from train_bench.plan import discover


def main(words: Sequence[str]) -> int:
    """The command: its words to its exit code."""
    parser = argparse.ArgumentParser("train-bench board", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="a record of a game in SGF")
    parser.add_argument("moves", nargs="?", type=int, metavar="MOVES", help="after so many moves, not all")
    options = parser.parse_args(words)
    records = discover.game_records()
    record = records.read(options.file)
    moves = len(record.moves) if options.moves is None else options.moves
    print(records.board_after(record, moves), end="")
    return VALID
