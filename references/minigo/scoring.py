"""Area scoring; pass-alive regions belong to their owner."""

from __future__ import annotations

import numpy as np

from train_bench.references.minigo.compiled import compiled
from train_bench.references.minigo.game import BLACK, EMPTY, WHITE, Geometry
from train_bench.references.minigo.pass_alive import pass_alive


@compiled
def area(board: np.ndarray, geometry: Geometry) -> int:
    """Black's area less White's: stones, pass-alive regions with the dead stones in them, and what is left of the
    empty regions that one side alone touches."""
    points = board.size
    owner = pass_alive(board, geometry)
    for point in range(points):
        if owner[point] == EMPTY:
            owner[point] = board[point]
    met = np.zeros(points, np.bool_)
    queue = np.empty(points, np.int16)
    total = 0
    for first in range(points):
        if owner[first] != EMPTY:
            total += owner[first]
            continue
        if met[first]:
            continue
        met[first] = True
        queue[0] = first
        done, queued = 0, 1
        black, white = False, False
        while done < queued:
            for next_to in geometry.neighbours[queue[done]]:
                if next_to < 0:
                    continue
                if owner[next_to] == BLACK:
                    black = True
                elif owner[next_to] == WHITE:
                    white = True
                elif not met[next_to]:
                    met[next_to] = True
                    queue[queued] = next_to
                    queued += 1
            done += 1
        if black != white:
            total += queued if black else -queued
    return total


@compiled
def winner(board: np.ndarray, komi: float, geometry: Geometry) -> int:
    """The colour that has more area, White's with `komi`; 0 for neither."""
    margin = area(board, geometry) - komi
    if margin == 0:
        return EMPTY
    return BLACK if margin > 0 else WHITE


@compiled
def is_settled(board: np.ndarray, geometry: Geometry) -> bool:
    """True if every empty point is in a pass-alive region, so the game is decided."""
    return not np.any((board == EMPTY) & (pass_alive(board, geometry) == EMPTY))
