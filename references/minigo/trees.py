"""Search trees of many games, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from train_bench.references.minigo.compiled import compiled
from train_bench.references.minigo.game import Geometry, Positions, place


class Trees(NamedTuple):
    """A tree per game; node 0 is the root. Axes: game, node, point or action.

    board            int8, the stones
    key              uint64, their Zobrist hash
    to_play          int8
    passes_in_a_row  int16
    ply              int32
    parent           int32, the node above
    action           int16, the move that led here
    expanded         bool, the network has evaluated the node
    pending          int16, how often the node was met since it waits for the network
    visits           int32, N
    child            int32, the node after a move, -1: none yet
    prior            float32, P, -1 where the move is not legal
    tries            int32, n
    value            float64, W
    used             int32 (games,), nodes in use
    root_value       float64 (games,), W of the move that led to the root, kept when the root moves down; 0 at first
    """

    board: np.ndarray
    key: np.ndarray
    to_play: np.ndarray
    passes_in_a_row: np.ndarray
    ply: np.ndarray
    parent: np.ndarray
    action: np.ndarray
    expanded: np.ndarray
    pending: np.ndarray
    visits: np.ndarray
    child: np.ndarray
    prior: np.ndarray
    tries: np.ndarray
    value: np.ndarray
    used: np.ndarray
    root_value: np.ndarray


def new_trees(games: int, nodes: int, points: int) -> Trees:
    """Room for `nodes` nodes in every tree; `plant` puts the roots."""
    per_node, per_move = (games, nodes), (games, nodes, points + 1)
    return Trees(
        board=np.zeros((games, nodes, points), dtype=np.int8),
        key=np.zeros(per_node, dtype=np.uint64),
        to_play=np.zeros(per_node, dtype=np.int8),
        passes_in_a_row=np.zeros(per_node, dtype=np.int16),
        ply=np.zeros(per_node, dtype=np.int32),
        parent=np.zeros(per_node, dtype=np.int32),
        action=np.zeros(per_node, dtype=np.int16),
        expanded=np.zeros(per_node, dtype=np.bool_),
        pending=np.zeros(per_node, dtype=np.int16),
        visits=np.zeros(per_node, dtype=np.int32),
        child=np.zeros(per_move, dtype=np.int32),
        prior=np.zeros(per_move, dtype=np.float32),
        tries=np.zeros(per_move, dtype=np.int32),
        value=np.zeros(per_move, dtype=np.float64),
        used=np.zeros(games, dtype=np.int32),
        root_value=np.zeros(games, dtype=np.float64),
    )


def with_room(trees: Trees, nodes: int) -> Trees:
    """`trees` as they are, or with twice the room or more if there is none for `nodes` nodes in each."""
    games, room, points = trees.board.shape
    if nodes <= room:
        return trees
    larger = new_trees(games, max(nodes, 2 * room), points)
    for new, old in zip(larger, trees, strict=True):
        if old.ndim == 1:
            new[:] = old
        else:
            new[:, :room] = old
    return larger


@compiled
def clear_node(trees: Trees, game: int, node: int) -> None:
    """Reset a node to unvisited."""
    trees.expanded[game, node] = False
    trees.pending[game, node] = 0
    trees.visits[game, node] = 0
    trees.child[game, node] = -1
    trees.prior[game, node] = -1.0
    trees.tries[game, node] = 0
    trees.value[game, node] = 0.0


@compiled
def plant(trees: Trees, positions: Positions, game: int) -> None:
    """A tree that is the game's present position alone."""
    clear_node(trees, game, 0)
    trees.board[game, 0] = positions.recent[game, 0]
    trees.key[game, 0] = positions.key[game]
    trees.to_play[game, 0] = positions.to_play[game]
    trees.passes_in_a_row[game, 0] = positions.passes_in_a_row[game]
    trees.ply[game, 0] = positions.ply[game]
    trees.parent[game, 0] = -1
    trees.used[game] = 1
    trees.root_value[game] = 0.0


@compiled
def add_child(trees: Trees, game: int, node: int, action: int, geometry: Geometry) -> int:
    """Add the child node of an untried move."""
    child = trees.used[game]
    trees.used[game] += 1
    clear_node(trees, game, child)
    points = trees.board.shape[2]
    trees.child[game, node, action] = child
    trees.parent[game, child] = node
    trees.action[game, child] = action
    trees.board[game, child] = trees.board[game, node]
    trees.key[game, child] = trees.key[game, node]
    trees.ply[game, child] = trees.ply[game, node] + 1
    colour = trees.to_play[game, node]
    trees.to_play[game, child] = -colour
    if action == points:
        trees.passes_in_a_row[game, child] = trees.passes_in_a_row[game, node] + 1
    else:
        trees.passes_in_a_row[game, child] = 0
        trees.key[game, child] = place(
            trees.board[game, child], trees.key[game, node], action, colour, geometry
        )
    return child


@compiled
def advance(trees: Trees, positions: Positions, game: int, action: int) -> None:
    """Keep the subtree of `action`, which has just been played; node numbers grow downwards, so nodes can be moved up
    in place. The new root has the visits of the edge that led to it."""
    kept = trees.child[game, 0, action]
    visits, value = trees.tries[game, 0, action], trees.value[game, 0, action]
    if kept < 0 or not trees.expanded[game, kept]:
        plant(trees, positions, game)
        trees.root_value[game] = value
        return
    used = trees.used[game]
    moved = np.full(used, -1, np.int32)
    count = 0
    for node in range(kept, used):
        if node != kept and moved[trees.parent[game, node]] < 0:
            continue
        above = trees.parent[game, node]
        moved[node] = count
        trees.board[game, count] = trees.board[game, node]
        trees.key[game, count] = trees.key[game, node]
        trees.to_play[game, count] = trees.to_play[game, node]
        trees.passes_in_a_row[game, count] = trees.passes_in_a_row[game, node]
        trees.ply[game, count] = trees.ply[game, node]
        trees.parent[game, count] = -1 if node == kept else moved[above]
        trees.action[game, count] = trees.action[game, node]
        trees.expanded[game, count] = trees.expanded[game, node]
        trees.pending[game, count] = 0
        trees.visits[game, count] = trees.visits[game, node]
        trees.child[game, count] = trees.child[game, node]
        trees.prior[game, count] = trees.prior[game, node]
        trees.tries[game, count] = trees.tries[game, node]
        trees.value[game, count] = trees.value[game, node]
        count += 1
    for node in range(count):
        for number in range(trees.child.shape[2]):
            child = trees.child[game, node, number]
            if child >= 0:
                trees.child[game, node, number] = moved[child]
    trees.used[game] = count
    trees.visits[game, 0] = visits
    trees.root_value[game] = value
