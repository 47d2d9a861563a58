"""Points that a side owns even if it passes for the rest of the game (Benson, "Life in the game of Go", 1976)."""

from __future__ import annotations

import numpy as np

from references.minigo.compiled import compiled
from references.minigo.game import BLACK, EMPTY, WHITE, Geometry, chains


@compiled
def regions(board: np.ndarray, colour: int, geometry: Geometry) -> np.ndarray:
    """Per point the first point of its region: connected points without a stone of `colour` (-1 on these)."""
    points = board.size
    region = np.full(points, -1, np.int16)
    queue = np.empty(points, np.int16)
    for first in range(points):
        if board[first] == colour or region[first] >= 0:
            continue
        region[first] = first
        queue[0] = first
        done, found = 0, 1
        while done < found:
            for next_to in geometry.neighbours[queue[done]]:
                if next_to >= 0 and board[next_to] != colour and region[next_to] < 0:
                    region[next_to] = first
                    queue[found] = next_to
                    found += 1
            done += 1
    return region


@compiled
def is_vital(
    board: np.ndarray, region: np.ndarray, first: int, chain: np.ndarray, of: int, geometry: Geometry
) -> bool:
    """Whether the chain `of` touches the region `first`, and every empty point of it."""
    touched = False
    for point in range(board.size):
        if region[point] != first:
            continue
        touches = False
        for next_to in geometry.neighbours[point]:
            if next_to >= 0 and chain[next_to] == of:
                touches = True
        touched |= touches
        if board[point] == EMPTY and not touches:
            return False
    return touched


@compiled
def mark_alive(board: np.ndarray, colour: int, geometry: Geometry, owner: np.ndarray) -> None:
    """Set `owner` to `colour` on its unconditionally alive chains and on the regions vital to them."""
    points = board.size
    chain, _, _, _ = chains(board, geometry)
    region = regions(board, colour, geometry)
    vital = np.zeros((points, points), np.bool_)
    alive = np.zeros(points, np.bool_)
    healthy = np.zeros(points, np.bool_)
    for first in range(points):
        alive[first] = board[first] == colour and chain[first] == first
        healthy[first] = region[first] == first
    for of in range(points):
        if alive[of]:
            for first in range(points):
                if healthy[first]:
                    vital[of, first] = is_vital(board, region, first, chain, of, geometry)
    changed = True
    while changed:
        changed = False
        for of in range(points):
            if alive[of] and np.sum(vital[of] & healthy) < 2:
                alive[of] = False
                changed = True
        for point in range(points):
            if region[point] < 0 or not healthy[region[point]]:
                continue
            for next_to in geometry.neighbours[point]:
                if next_to >= 0 and board[next_to] == colour and not alive[chain[next_to]]:
                    healthy[region[point]] = False
                    changed = True
    for point in range(points):
        if board[point] == colour:
            if alive[chain[point]]:
                owner[point] = colour
            continue
        for of in range(points):
            if alive[of] and healthy[region[point]] and vital[of, region[point]]:
                owner[point] = colour


@compiled
def pass_alive(board: np.ndarray, geometry: Geometry) -> np.ndarray:
    """int8 (n,): the colour that owns each point whatever happens, 0 elsewhere."""
    owner = np.zeros(board.size, np.int8)
    mark_alive(board, BLACK, geometry, owner)
    mark_alive(board, WHITE, geometry, owner)
    return owner
