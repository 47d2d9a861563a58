"""Regions that a side owns even if it passes for the rest of the game (Benson, "Life in the game of Go", 1976), as the
reference of MLPerf finds them. It differs in two points: a region with one empty point that touches none of its chains
is pass-alive all the same; and a chain that turns out not to be alive takes an eye from the other chains only where it
has a liberty, and not where it touches but a stone of the other side.
"""

from __future__ import annotations

import numpy as np

from train_bench.references.minigo.compiled import compiled
from train_bench.references.minigo.game import BLACK, EMPTY, WHITE, Geometry, chains


@compiled
def regions(board: np.ndarray, colour: int, geometry: Geometry) -> tuple[np.ndarray, int]:
    """Per point the number of its region, connected points without a stone of `colour` (-1 on these), and how
    many regions there are."""
    points = board.size
    region = np.full(points, -1, np.int16)
    queue = np.empty(points, np.int16)
    count = 0
    for first in range(points):
        if board[first] == colour or region[first] >= 0:
            continue
        region[first] = count
        queue[0] = first
        done, queued = 0, 1
        while done < queued:
            for next_to in geometry.neighbours[queue[done]]:
                if next_to >= 0 and board[next_to] != colour and region[next_to] < 0:
                    region[next_to] = count
                    queue[queued] = next_to
                    queued += 1
            done += 1
        count += 1
    return region, count


@compiled
def borders(
    board: np.ndarray,
    colour: int,
    geometry: Geometry,
    chain: np.ndarray,
    chains_there: int,
    region: np.ndarray,
    regions_there: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per chain of `colour` and region: whether they touch, bool; how many liberties the chain has in the region,
    int16; and whether the region is vital to it, because all empty points of the region are its liberties, bool. Per
    region: how many empty points touch no stone of `colour`, int16."""
    touches = np.zeros((chains_there, regions_there), np.bool_)
    liberties = np.zeros((chains_there, regions_there), np.int16)
    empty = np.zeros(regions_there, np.int16)
    interior = np.zeros(regions_there, np.int16)
    for point in range(board.size):
        here = region[point]
        if here < 0:
            continue
        around = geometry.neighbours[point]
        inside = True
        for number in range(4):
            if around[number] < 0 or board[around[number]] != colour:
                continue
            inside = False
            of = chain[around[number]]
            touches[of, here] = True
            known = board[point] != EMPTY
            for earlier in range(number):
                known |= around[earlier] >= 0 and chain[around[earlier]] == of
            if not known:
                liberties[of, here] += 1
        if board[point] == EMPTY:
            empty[here] += 1
            interior[here] += inside
    return touches, liberties, touches & (liberties == empty), interior


@compiled
def mark_regions(board: np.ndarray, colour: int, geometry: Geometry, owner: np.ndarray) -> None:
    """Set `owner` to `colour` in the regions that its unconditionally alive chains alone enclose, unless two or more
    empty points of a region are out of their reach."""
    points = board.size
    first_stone, _, _, _ = chains(board, geometry)
    chain = np.full(points, -1, np.int16)
    count = 0
    for point in range(points):
        if board[point] == colour:
            if first_stone[point] == point:
                chain[point] = count
                count += 1
            else:
                chain[point] = chain[first_stone[point]]
    region, regions_there = regions(board, colour, geometry)
    touches, liberties, vital, interior = borders(
        board, colour, geometry, chain, count, region, regions_there
    )
    alive = np.ones(count, np.bool_)
    healthy = np.ones(regions_there, np.bool_)
    eyes = vital.sum(axis=1)
    changed = True
    while changed:
        changed = False
        for of in range(count):
            if not alive[of] or eyes[of] >= 2:
                continue
            alive[of] = False
            changed = True
            for here in range(regions_there):
                if liberties[of, here] > 0 and healthy[here]:
                    healthy[here] = False
                    eyes -= vital[:, here]
    for point in range(points):
        here = region[point]
        if here < 0 or interior[here] >= 2:
            continue
        enclosing = touches[:, here]
        if np.any(enclosing) and not np.any(enclosing & ~alive):
            owner[point] = colour


@compiled
def pass_alive(board: np.ndarray, geometry: Geometry) -> np.ndarray:
    """int8 (n,): the colour that owns each pass-alive region, dead stones in it included; 0 elsewhere, the stones
    that enclose the regions among it."""
    owner = np.zeros(board.size, np.int8)
    mark_regions(board, BLACK, geometry, owner)
    mark_regions(board, WHITE, geometry, owner)
    return owner
