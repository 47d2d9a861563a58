"""Monte-Carlo tree search over many games in parallel: the leaves of all trees go through the network in one batch.

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

from train_bench.references.minigo.compiled import compiled
from train_bench.references.minigo.game import (
    EMPTY,
    HISTORY,
    Geometry,
    Positions,
    is_over,
    moves_without_history,
    was_seen,
    write_planes,
)
from train_bench.references.minigo.pass_alive import pass_alive
from train_bench.references.minigo.scoring import winner
from train_bench.references.minigo.trees import Trees, add_child

EXPLORATION_BASE = 19652.0
EXPLORATION_INIT = 1.25


class Manner(NamedTuple):
    """Search parameters.

    komi                points added to White's score
    virtual_losses      leaves per tree and batch
    value_init_penalty  by how much a move that was not tried is worse than its node, for the mover
    passes_from         moves of a game before which a pass is considered only where there is no other move
    """

    komi: float
    virtual_losses: int
    value_init_penalty: float
    passes_from: int


@compiled
def rate(visits: int) -> float:
    """The first two factors of U."""
    return 2.0 * (math.log((1.0 + visits + EXPLORATION_BASE) / EXPLORATION_BASE) + EXPLORATION_INIT)


@compiled
def score(trees: Trees, game: int, node: int, action: int, scale: float) -> float:
    """W / (1 + n) side + scale P / (1 + n) of a move."""
    share = 1.0 + trees.tries[game, node, action]
    quality = trees.value[game, node, action] / share * trees.to_play[game, node]
    return quality + scale * trees.prior[game, node, action] / share


@compiled
def best_move(trees: Trees, game: int, node: int) -> int:
    """The move to try next, the first of equals."""
    visits = trees.visits[game, node]
    scale = rate(visits) * math.sqrt(max(1.0, visits - 1.0))
    best, best_score = trees.prior.shape[2] - 1, -np.inf
    for action in range(trees.prior.shape[2]):
        if trees.prior[game, node, action] < 0.0:
            continue
        this = score(trees, game, node, action, scale)
        if this > best_score:
            best, best_score = action, this
    return best


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
    trees.root_value[game] += value


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
def write_node_planes(
    trees: Trees,
    positions: Positions,
    game: int,
    node: int,
    planes: np.ndarray,
    geometry: Geometry,
    turn: int,
) -> None:
    """Fill `planes`, uint8 (13, n), with what the network sees of a node whose legal moves are marked."""
    recent = np.empty((HISTORY, trees.board.shape[2]), np.int8)
    above, past = node, 0
    for age in range(HISTORY):
        if above > 0:
            recent[age] = trees.board[game, above]
            above = trees.parent[game, above]
        else:
            recent[age] = positions.recent[game, past]
            past += 1
    legal = trees.prior[game, node] >= 0.0
    write_planes(planes, recent, trees.to_play[game, node], legal, geometry, geometry.symmetries[turn])


@compiled
def symmetry_of(key: np.uint64, salt: np.uint64) -> int:
    """A symmetry at random for a position, whatever the batch it is looked at in: three bits of a mixed hash
    (finaliser of SplitMix64; Steele et al., 2014)."""
    mixed = key ^ salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))) & np.uint64(7))


@compiled
def walk(trees: Trees, game: int, geometry: Geometry) -> int:
    """The leaf reached by the best moves from the root: a node not yet evaluated by the network."""
    node = 0
    while trees.expanded[game, node]:
        action = best_move(trees, game, node)
        child = trees.child[game, node, action]
        node = child if child >= 0 else add_child(trees, game, node, action, geometry)
    return node


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
    """Walk down each tree of `games` until `virtual_losses` leaves wait for the network or the root has the visits of
    `goals`, int32 (all games,), and return the number of rows filled. `salts`, uint64 (all games,), choose the
    symmetries.

    A leaf that the network has to see fills a row of `planes`, uint8 (.., 13, n), and of `leaves`, int32 (.., 3):
    game, node, symmetry. It counts as a loss of those who move there until `incorporate` has its value, and as
    another one each time that a walk ends at it. Where a game is over, its result is backed up at once. Leaves
    that wait are no visits yet: a root may end with up to `virtual_losses` - 1 visits more than its goal.
    """
    count = 0
    for game in games:
        waiting = 0
        while waiting < manner.virtual_losses and trees.visits[game, 0] < goals[game]:
            node = walk(trees, game, geometry)
            if is_over(trees.passes_in_a_row[game, node]):
                back_up(trees, game, node, float(winner(trees.board[game, node], manner.komi, geometry)))
                continue
            waiting += 1
            lose(trees, game, node, 1.0)
            trees.pending[game, node] += 1
            if trees.pending[game, node] == 1:
                mark_legal(trees, positions, game, node, manner, geometry)
                turn = symmetry_of(trees.key[game, node], salts[game])
                write_node_planes(trees, positions, game, node, planes[count], geometry, turn)
                leaves[count, 0], leaves[count, 1], leaves[count, 2] = game, node, turn
                count += 1
            if node == 0:
                break
    return count


@compiled
def incorporate(
    trees: Trees,
    leaves: np.ndarray,
    policies: np.ndarray,
    values: np.ndarray,
    manner: Manner,
    geometry: Geometry,
) -> None:
    """Back up the network's evaluation of every leaf of `select`: `policies`, float32 (leaves, n + 1), under the leaf's
    symmetry, and `values`, float32 (leaves,), from Black's side."""
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
        lose(trees, game, node, -float(trees.pending[game, node]))
        trees.pending[game, node] = 0
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
def root_quality(trees: Trees, game: int) -> float:
    """Q = W / (1 + N) of the root, from the side of who is to play."""
    return trees.root_value[game] / (1.0 + trees.visits[game, 0]) * trees.to_play[game, 0]


@compiled
def most_visited(trees: Trees, game: int, geometry: Geometry, barred: bool) -> int:
    """The root's most visited move; of equals that with the highest score, where U has sqrt(1 + N); of these the
    first. Where pass-alive regions are `barred`, moves into them are left out."""
    points = trees.board.shape[2]
    owner = pass_alive(trees.board[game, 0], geometry) if barred else np.zeros(points, np.int8)
    visits = trees.visits[game, 0]
    scale = rate(visits) * math.sqrt(1.0 + visits)
    best, best_score = points, -np.inf
    for action in range(points + 1):
        if trees.prior[game, 0, action] < 0.0 or (action < points and owner[action] != EMPTY):
            continue
        this = score(trees, game, 0, action, scale)
        more = trees.tries[game, 0, action] - trees.tries[game, 0, best]
        if best_score == -np.inf or more > 0 or (more == 0 and this > best_score):
            best, best_score = action, this
    return best


@compiled
def prune(trees: Trees, game: int, geometry: Geometry, barred: bool) -> None:
    """Reduce the visits of the root's moves, those of all but the most visited one to as many as their value
    justifies (Wu, "Accelerating Self-Play Learning in Go", 2019, section 3.2): n such that W / (1 + N) side + U P / n
    reaches the score of the most visited one, rounded down; none where W / (1 + N) side alone exceeds that. Where
    pass-alive regions are `barred`, moves into them keep none. A pass gets one visit if no move has any."""
    points = trees.board.shape[2]
    best = most_visited(trees, game, geometry, False)
    owner = pass_alive(trees.board[game, 0], geometry) if barred else np.zeros(points, np.int8)
    visits, side = trees.visits[game, 0], trees.to_play[game, 0]
    limit = score(trees, game, 0, best, rate(visits) * math.sqrt(1.0 + visits))
    scale = rate(visits) * math.sqrt(float(visits))
    for action in range(points + 1):
        tries = trees.tries[game, 0, action]
        if action < points and owner[action] != EMPTY:
            trees.tries[game, 0, action] = 0
        elif action != best and tries > 0:
            missing = limit - trees.value[game, 0, action] / (1.0 + tries) * side
            justified = scale * trees.prior[game, 0, action] / missing if missing > 0.0 else 0.0
            trees.tries[game, 0, action] = int(min(float(tries), justified))
    if not np.any(trees.tries[game, 0]):
        trees.tries[game, 0, points] = 1
