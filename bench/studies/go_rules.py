"""Differential test of minigo's rules, superko included: random games against a literal implementation of the rules;
the first difference ends the program with a traceback.

    python bench/studies/go_rules.py [GAMES [SIZE ...]]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.references.test_minigo_game import compare_playouts
from train_bench.core.progress_bar import bar

SEED = 1


def main() -> None:
    """Compare and say how many games agreed."""
    games = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for size in [int(word) for word in sys.argv[2:]] or [9, 19]:
        for number in bar(range(games), f"games on {size}x{size}"):
            compare_playouts(size, 1, seed=SEED + number)
        print(f"{games} random games on {size}x{size} agree")


if __name__ == "__main__":
    main()
