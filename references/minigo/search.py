"""Monte-Carlo tree search over many games at once: the leaves of all trees go through the network in one batch.

AlphaGo Zero's search (Silver et al., 2017) with the constants of the MLPerf reference. In a node that was visited
N times, with side = 1 where Black is to move and -1 else, the move with the greatest

    W / (1 + n) side + U P / (1 + n),   U = 2 (ln((1 + N + 19652) / 19652) + 1.25) sqrt(max(1, N - 1))

is tried; n counts the visits of the move, P is its prior, W the sum of its values from Black's side, to begin with
that of the node less `value_init_penalty` for the mover. One visit of the root is its own evaluation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from references.minigo.compiled import compiled
from references.minigo.game import (
    HISTORY,
    Geometry,
    Positions,
    is_over,
    moves_without_history,
    place,
    was_seen,
    winner,
    write_planes,
)
from references.minigo.pass_alive import pass_alive

EXPLORATION_BASE = 19652.0
EXPLORATION_INIT = 1.25


class Trees(NamedTuple):
    """A tree per game; node 0 is the root. Axes: game, node, point or action.

    board            int8, the stones
    key              uint64, their Zobrist hash
    to_play          int8
    passes_in_a_row  int16
    passes           int16
    ply              int32
    parent           int32, the node above
    action           int16, the move that led here
    expanded         bool, the network has seen the node
    pending          bool, the node waits for the network
    visits           int32, N
    child            int32, the node behind a move, -1: none yet
    prior            float32, P, -1 where the move is not legal
    tries            int32, n
    value            float64, W
    used             int32 (games,), nodes in use
    """

    board: np.ndarray
    key: np.ndarray
    to_play: np.ndarray
    passes_in_a_row: np.ndarray
    passes: np.ndarray
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


class Manner(NamedTuple):
    """How trees grow.

    komi                what White gets
    virtual_losses      leaves per tree and batch
    value_init_penalty  by how much a move that was not tried is worse than its node, for the mover
    pass_alive_after    passes in a game from which moves on points that are settled are not considered
    passes_from         moves of a game before which a pass is considered only where there is no other move
    """

    komi: float
    virtual_losses: int
    value_init_penalty: float
    pass_alive_after: int
    passes_from: int


def new_trees(games: int, nodes: int, points: int) -> Trees:
    """Room for `nodes` nodes in every tree; `plant` puts the roots."""
    per_node, per_move = (games, nodes), (games, nodes, points + 1)
    return Trees(
        board=np.zeros((games, nodes, points), dtype=np.int8),
        key=np.zeros(per_node, dtype=np.uint64),
        to_play=np.zeros(per_node, dtype=np.int8),
        passes_in_a_row=np.zeros(per_node, dtype=np.int16),
        passes=np.zeros(per_node, dtype=np.int16),
        ply=np.zeros(per_node, dtype=np.int32),
        parent=np.zeros(per_node, dtype=np.int32),
        action=np.zeros(per_node, dtype=np.int16),
        expanded=np.zeros(per_node, dtype=np.bool_),
        pending=np.zeros(per_node, dtype=np.bool_),
        visits=np.zeros(per_node, dtype=np.int32),
        child=np.zeros(per_move, dtype=np.int32),
        prior=np.zeros(per_move, dtype=np.float32),
        tries=np.zeros(per_move, dtype=np.int32),
        value=np.zeros(per_move, dtype=np.float64),
        used=np.zeros(games, dtype=np.int32),
    )


@compiled
def clear_node(trees: Trees, game: int, node: int) -> None:
    """A node that nobody has looked at."""
    trees.expanded[game, node] = False
    trees.pending[game, node] = False
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
    trees.passes[game, 0] = positions.passes[game]
    trees.ply[game, 0] = positions.ply[game]
    trees.parent[game, 0] = -1
    trees.used[game] = 1


@compiled
def exploration(visits: int) -> float:
    """U of the module's equation."""
    rate = math.log((1.0 + visits + EXPLORATION_BASE) / EXPLORATION_BASE) + EXPLORATION_INIT
    return 2.0 * rate * math.sqrt(max(1.0, visits - 1.0))


@compiled
def best_move(trees: Trees, game: int, node: int) -> int:
    """The move to try next, the first of equals."""
    side = float(trees.to_play[game, node])
    scale = exploration(trees.visits[game, node])
    best, best_score = -1, -np.inf
    for action in range(trees.prior.shape[2]):
        prior = float(trees.prior[game, node, action])
        if prior < 0.0:
            continue
        share = 1.0 + trees.tries[game, node, action]
        score = trees.value[game, node, action] / share * side + scale * prior / share
        if score > best_score:
            best, best_score = action, score
    return best


@compiled
def add_child(trees: Trees, game: int, node: int, action: int, geometry: Geometry) -> int:
    """The node behind a move that was not tried before."""
    child = trees.used[game]
    trees.used[game] += 1
    clear_node(trees, game, child)
    points = trees.board.shape[2]
    trees.child[game, node, action] = child
    trees.parent[game, child] = node
    trees.action[game, child] = action
    trees.board[game, child] = trees.board[game, node]
    trees.key[game, child] = trees.key[game, node]
    trees.passes[game, child] = trees.passes[game, node]
    trees.ply[game, child] = trees.ply[game, node] + 1
    colour = trees.to_play[game, node]
    trees.to_play[game, child] = -colour
    if action == points:
        trees.passes_in_a_row[game, child] = trees.passes_in_a_row[game, node] + 1
        trees.passes[game, child] += 1
    else:
        trees.passes_in_a_row[game, child] = 0
        trees.key[game, child] = place(
            trees.board[game, child], trees.key[game, node], action, colour, geometry
        )
    return child


@compiled
def lose(trees: Trees, game: int, node: int, losses: float) -> None:
    """Count the moves that lead to `node` as so many losses of those who made them; less than 0 takes these
    back."""
    while trees.parent[game, node] >= 0:
        above = trees.parent[game, node]
        trees.value[game, above, trees.action[game, node]] -= losses * trees.to_play[game, above]
        node = above


@compiled
def back_up(trees: Trees, game: int, node: int, value: float) -> None:
    """Add a value from Black's side to the moves that lead to `node`, and a visit to all nodes on the way."""
    trees.visits[game, node] += 1
    while trees.parent[game, node] >= 0:
        above = trees.parent[game, node]
        trees.tries[game, above, trees.action[game, node]] += 1
        trees.value[game, above, trees.action[game, node]] += value
        trees.visits[game, above] += 1
        node = above


@compiled
def mark_legal(
    trees: Trees, positions: Positions, game: int, node: int, manner: Manner, geometry: Geometry
) -> None:
    """Prior 0 for the moves of a node that are legal in the game that leads to it and considered, -1 for all
    others."""
    points = trees.board.shape[2]
    legal, keys = np.empty(points + 1, np.bool_), np.empty(points, np.uint64)
    board = trees.board[game, node]
    moves_without_history(board, trees.to_play[game, node], trees.key[game, node], geometry, legal, keys)
    if trees.passes[game, node] >= manner.pass_alive_after:
        legal[:points] &= pass_alive(board, geometry) == 0
    for action in range(points + 1):
        trees.prior[game, node, action] = 0.0 if legal[action] else -1.0
    for point in range(points):
        if not legal[point]:
            continue
        again = was_seen(positions.seen[game], keys[point])
        above = node
        while not again and above > 0:
            again = trees.key[game, above] == keys[point]
            above = trees.parent[game, above]
        if again:
            trees.prior[game, node, point] = -1.0
    if trees.ply[game, node] < manner.passes_from and np.any(trees.prior[game, node, :points] >= 0.0):
        trees.prior[game, node, points] = -1.0


@compiled
def look(
    trees: Trees,
    positions: Positions,
    game: int,
    node: int,
    planes: np.ndarray,
    geometry: Geometry,
    turn: int,
) -> None:
    """Fill `planes`, uint8 (13, n), with what the network sees of a node."""
    recent = np.empty((HISTORY, trees.board.shape[2]), np.int8)
    above, past = node, 0
    for age in range(HISTORY):
        if above > 0:
            recent[age] = trees.board[game, above]
            above = trees.parent[game, above]
        else:
            recent[age] = positions.recent[game, past]
            past += 1
    write_planes(planes, recent, trees.to_play[game, node], geometry, geometry.symmetries[turn])


@compiled
def symmetry_of(key: np.uint64, salt: np.uint64) -> int:
    """A symmetry at random for a position, whatever the batch it is looked at in: three bits of a mixed hash
    (finaliser of SplitMix64; Steele et al., 2014)."""
    mixed = key ^ salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))) & np.uint64(7))


@compiled
def select(
    trees: Trees,
    positions: Positions,
    games: np.ndarray,
    goals: np.ndarray,
    salts: np.ndarray,
    manner: Manner,
    geometry: Geometry,
    planes: np.ndarray,
    leaves: np.ndarray,
) -> int:
    """Walk down each tree of `games` up to `virtual_losses` times, until its root has the visits of `goals`, int32
    (all games,), and return the number of leaves found. `salts`, uint64 (all games,), choose the symmetries.

    A leaf that the network has to see fills a row of `planes`, uint8 (.., 13, n), and of `leaves`, int32 (.., 3):
    game, node, symmetry. It counts as a loss of those who move there until `incorporate` has its value. A tree
    whose walk ends at a leaf that waits already is left for the next batch. Where a game is over, its result
    is backed up at once.
    """
    found = 0
    points = trees.board.shape[2]
    for game in games:
        waiting = 0
        for _ in range(manner.virtual_losses):
            if trees.visits[game, 0] + waiting >= goals[game]:
                break
            node = 0
            over = False
            while trees.expanded[game, node]:
                action = best_move(trees, game, node)
                child = trees.child[game, node, action]
                if child < 0:
                    child = add_child(trees, game, node, action, geometry)
                node = child
                over = is_over(trees.passes_in_a_row[game, node], trees.ply[game, node], points)
                if over:
                    break
            if over:
                value = float(winner(trees.board[game, node], manner.komi, geometry))
                back_up(trees, game, node, value)
                continue
            if trees.pending[game, node]:
                break
            trees.pending[game, node] = True
            lose(trees, game, node, 1.0)
            mark_legal(trees, positions, game, node, manner, geometry)
            turn = symmetry_of(trees.key[game, node], salts[game])
            look(trees, positions, game, node, planes[found], geometry, turn)
            leaves[found, 0], leaves[found, 1], leaves[found, 2] = game, node, turn
            found += 1
            waiting += 1
    return found


@compiled
def incorporate(
    trees: Trees,
    leaves: np.ndarray,
    policies: np.ndarray,
    values: np.ndarray,
    manner: Manner,
    geometry: Geometry,
) -> None:
    """Give every leaf of `select` what the network said of it: `policies`, float32 (leaves, n + 1), seen through
    the leaf's symmetry, and `values`, float32 (leaves,), from Black's side."""
    for number in range(leaves.shape[0]):
        game, node = leaves[number, 0], leaves[number, 1]
        moved = geometry.symmetries[leaves[number, 2]]
        prior = trees.prior[game, node]
        total, legal = 0.0, 0
        for action in range(prior.size):
            if prior[action] >= 0.0:
                prior[action] = policies[number, moved[action]]
                total += prior[action]
                legal += 1
        value = float(values[number])
        begin = value - manner.value_init_penalty * trees.to_play[game, node]
        begin = min(1.0, max(-1.0, begin))
        for action in range(prior.size):
            if prior[action] >= 0.0:
                prior[action] = prior[action] / total if total > 1e-12 else 1.0 / legal
                trees.value[game, node, action] = begin
        trees.expanded[game, node] = True
        trees.pending[game, node] = False
        lose(trees, game, node, -1.0)
        back_up(trees, game, node, value)


@compiled
def mix_noise(trees: Trees, game: int, noise: np.ndarray, share: float) -> None:
    """P := (1 - share) P + share noise at the root; `noise`, float64, has an entry per legal move."""
    number = 0
    for action in range(trees.prior.shape[2]):
        prior = trees.prior[game, 0, action]
        if prior >= 0.0:
            trees.prior[game, 0, action] = (1.0 - share) * prior + share * noise[number]
            number += 1


@compiled
def root_value(trees: Trees, game: int) -> float:
    """The mean value of the moves that were tried at the root, their start values counted as a visit each,
    from the side of who is to play."""
    count, total = 0, 0.0
    for action in range(trees.prior.shape[2]):
        if trees.tries[game, 0, action] > 0:
            count += trees.tries[game, 0, action] + 1
            total += trees.value[game, 0, action]
    return total / max(1, count) * trees.to_play[game, 0]


@compiled
def pruned_tries(trees: Trees, game: int) -> np.ndarray:
    """int32 (n + 1,): visits of the root's moves, those of all but the most visited one reduced to as many as
    their value justifies (Wu, "Accelerating Self-Play Learning in Go", 2019, section 3.2): the fewest with which
    their score would not exceed that of the most visited one."""
    tries = trees.tries[game, 0].copy()
    side = float(trees.to_play[game, 0])
    scale = exploration(trees.visits[game, 0])
    best = np.argmax(tries)
    share = 1.0 + tries[best]
    limit = (trees.value[game, 0, best] * side + scale * trees.prior[game, 0, best]) / share
    for action in range(tries.size):
        if action == best or tries[action] == 0:
            continue
        mean = trees.value[game, 0, action] / (1.0 + tries[action]) * side
        if limit > mean:
            needed = scale * trees.prior[game, 0, action] / (limit - mean) - 1.0
            tries[action] = max(0, min(tries[action], math.ceil(needed)))
    return tries


@compiled
def advance(trees: Trees, positions: Positions, game: int, action: int) -> None:
    """Keep what was learnt behind `action`, which has just been played; node numbers grow downwards, so
    nodes can be moved up in place."""
    kept = trees.child[game, 0, action]
    if kept < 0 or not trees.expanded[game, kept]:
        plant(trees, positions, game)
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
        trees.passes[game, count] = trees.passes[game, node]
        trees.ply[game, count] = trees.ply[game, node]
        trees.parent[game, count] = -1 if node == kept else moved[above]
        trees.action[game, count] = trees.action[game, node]
        trees.expanded[game, count] = trees.expanded[game, node]
        trees.pending[game, count] = False
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
