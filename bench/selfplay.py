"""Speed of minigo: positions per second of the rules alone and of self-play with the network, and time by part.

The rules play random games; their rival is the implementation in tests/references/slow_go.py, which plays the same
kind of games word by word. Self-play is that of the full benchmark's network, at the board size and readouts given
here, with as many threads as the machine has cores. A position is a move that was made; of self-play, readouts are
counted as well. The last line is rules over rival.

    python bench/selfplay.py [SIZE] [GAMES]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from planned import composed

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.references.slow_go import SlowGo
from train_bench.references.minigo import game
from train_bench.references.minigo.model import Network
from train_bench.references.minigo.selfplay import SelfPlay

READOUTS, FAST_READOUTS = 64, 16
SLOW_GAMES = 3
LONGEST = 2
"""Moves per point of the board after which a random game is broken off."""
SEED = 1


def main() -> None:
    """Measure and print."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    games = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    ours, theirs = _rules(size, games), _slow_rules(size)
    print(f"rules on {size}x{size}: {ours:.0f} positions/s, word by word {theirs:.0f}", flush=True)
    _selfplay(size)
    print(f"ratio {ours / theirs:.1f}")


def _rules(size: int, games: int) -> float:
    rng, geometry = np.random.default_rng(SEED), game.geometry(size)
    longest = LONGEST * size * size
    game.random_playouts(game.new_games(1, size), geometry, rng.random((1, longest)))
    positions, draws = game.new_games(games, size), rng.random((games, longest))
    start = time.perf_counter()
    game.random_playouts(positions, geometry, draws)
    return float(positions.ply.sum()) / (time.perf_counter() - start)


def _slow_rules(size: int) -> float:
    rng, played = np.random.default_rng(SEED), 0
    start = time.perf_counter()
    for _ in range(SLOW_GAMES):
        slow = SlowGo(size)
        while not slow.over() and slow.ply < LONGEST * size * size:
            legal = slow.legal()
            slow.play(legal[int(rng.integers(len(legal)))] if legal else None)
        played += slow.ply
    return played / (time.perf_counter() - start)


def _selfplay(size: int) -> None:
    config = composed(
        ["benchmark=minigo", "benchmark.starts_from=random", "benchmark.opponent=untrained"]
    ).benchmark
    searched = replace(config.search, readouts=READOUTS, fast_readouts=FAST_READOUTS, games_at_once=64)
    config = replace(config, model=replace(config.model, board_size=size), search=searched)
    network = Network(config.model).eval()
    seen, inside = 0, 0.0

    def infer(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal seen, inside
        start = time.perf_counter()
        with torch.inference_mode():
            logits, values = network(torch.from_numpy(planes).view(-1, game.PLANES, size, size))
            answer = torch.softmax(logits, dim=1).numpy(), np.ascontiguousarray(values.numpy())
        seen, inside = seen + len(planes), inside + time.perf_counter() - start
        return answer

    play = SelfPlay(replace(config, search=replace(searched, games_at_once=2)))
    list(play.play(infer, range(2), SEED))  # compiles
    play, seen, inside = SelfPlay(config), 0, 0.0
    start = time.perf_counter()
    moves = sum(len(record.moves) for record in play.play(infer, range(64), SEED))
    seconds = time.perf_counter() - start
    print(
        f"self-play on {size}x{size}: {moves / seconds:.1f} positions/s, {seen / seconds:.0f} readouts/s, "
        f"{100 * inside / seconds:.0f} % of the time in the network ({torch.get_num_threads()} threads)",
        flush=True,
    )


if __name__ == "__main__":
    main()
