"""The rules and the search, against what the engine of the published reference says of the same positions.

The files lie beside the checkout and are no part of it. A line of games is what that engine said before a move; a
search is one with a made-up network, without noise and symmetries.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests import needs
from train_bench.references.minigo import game, scoring, search, trees
from train_bench.references.minigo.pass_alive import pass_alive

ORACLE = needs.DATA / "go_oracle"
KOMI = 7.5
COLOURS = np.array([game.EMPTY, game.BLACK, game.WHITE], np.int8)

pytestmark = [needs.shared(ORACLE), pytest.mark.usefixtures("engine")]


def digits(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8) - ord("0")


def lines_of(name: str) -> Iterator[list[str]]:
    with gzip.open(ORACLE / name, "rt") as file:
        for line in file:
            yield line.split()


@pytest.mark.parametrize(("size", "count"), [(9, 1137), (19, 837)])
def test_planes_legal_moves_pass_alive_regions_and_scores_are_those_of_the_reference(
    size: int, count: int
) -> None:
    """Of every position of random games, and the end of each."""
    geometry, points = game.geometry(size), size * size
    planes, legal = np.empty((game.PLANES, points), np.uint8), np.empty(points + 1, np.bool_)
    seen, dead = 0, 0
    for words in lines_of(f"games_{size}x{size}.txt.gz"):
        if words[0] == "GAME":
            positions, settled_at = game.new_games(1, size, 1000), -1
            continue
        board = positions.recent[0, 0]
        if words[0] == "END":
            assert scoring.area(board, geometry) - KOMI == float(words[1])
            assert settled_at == int(words[3]) and positions.ply[0] == int(words[5])
            continue
        if settled_at < 0 and scoring.is_settled(board, geometry):
            settled_at = int(positions.ply[0])
        game.legal_moves(positions, 0, geometry, legal)
        game.write_planes(
            planes, positions.recent[0], positions.to_play[0], legal, geometry, geometry.symmetries[0]
        )
        assert np.array_equal(planes.ravel(), digits(words[1])), (seen, "planes")
        assert np.array_equal(legal, digits(words[2])), (seen, "legal moves")
        owner = pass_alive(board, geometry)
        assert np.array_equal(owner, COLOURS[digits(words[3])]), (seen, "pass-alive regions")
        assert scoring.area(board, geometry) - KOMI == float(words[4]), (seen, "score")
        seen += 1
        dead += int(((owner == -board) & (board != 0)).any())
        game.play(positions, 0, int(words[5]), geometry)
    assert seen == count and dead > 0


@dataclass
class Search:
    """A search of the reference. `children` has (visits, W, prior) of the root's moves, `pruned` their visits after
    pruning."""

    size: int
    readouts: int
    losses: int
    penalty: float
    moves: list[int]
    visits: int = 0
    quality: float = 0.0
    children: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    pruned: dict[int, int] = field(default_factory=dict)


def searches() -> list[Search]:
    found: list[Search] = []
    pruned = False
    for words in lines_of("searches.txt.gz"):
        if words[0] == "SEARCH":
            size, readouts, losses = map(int, words[1:4])
            found.append(Search(size, readouts, losses, float(words[4]), [int(word) for word in words[5:]]))
            pruned = False
        elif words[0] == "N":
            found[-1].visits, found[-1].quality = int(words[1]), float(words[3])
        elif words[0] == "PRUNED":
            pruned = True
        elif pruned:
            found[-1].pruned[int(words[0])] = int(words[1])
        else:
            found[-1].children[int(words[0])] = (int(words[1]), float(words[2]), float(words[3]))
    return found


def made_up_network(planes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The network of the searches (README beside them)."""
    points = size * size
    black = planes[:, 8, 0].astype(np.int64)
    mine, other = planes[:, 0].astype(np.int64), planes[:, 1].astype(np.int64)
    stones = np.where(black[:, None] == 1, mine + 2 * other, other + 2 * mine)
    place, moves = np.arange(points), np.arange(points + 1)
    a, b = stones @ (place + 1), stones @ (place * place + 7)
    weights = (1 + (a[:, None] * (moves + 3) + 5 * moves * moves) % 97).astype(np.float32)
    values = 0.15 * (((b + 5 * np.where(black, 1, 2)) % 101) / 50 - 1)
    return weights / weights.sum(axis=1, keepdims=True), values.astype(np.float32)


def searched(wanted: Search) -> trees.Trees:
    """A tree of ours for the same question. Symmetries are taken back before the network sees a position."""
    geometry, points = game.geometry(wanted.size), wanted.size**2
    positions = game.new_games(1, wanted.size)
    for action in wanted.moves:
        game.play(positions, 0, action, geometry)
    manner = search.Manner(
        komi=KOMI, virtual_losses=wanted.losses, value_init_penalty=wanted.penalty, passes_from=0
    )
    grown = trees.new_trees(1, wanted.readouts + 8, points)
    trees.plant(grown, positions, 0)
    goals, salts = np.full(1, wanted.readouts, np.int32), np.zeros(1, np.uint64)
    planes, leaves = np.empty((wanted.losses, 13, points), np.uint8), np.empty((wanted.losses, 3), np.int32)
    while grown.visits[0, 0] < wanted.readouts:
        games = np.zeros(1, np.int32)
        rows = search.select(grown, positions, games, goals, salts, manner, geometry, planes, leaves)
        moved = geometry.symmetries[leaves[:rows, 2]].astype(np.int64)
        upright = np.take_along_axis(planes[:rows], moved[:, None, :points], axis=2)
        policies, values = made_up_network(upright, wanted.size)
        turned = np.empty_like(policies)
        np.put_along_axis(turned, moved, policies, axis=1)
        search.incorporate(grown, leaves[:rows], turned, values, manner, geometry)
    return grown


def test_searches_visit_and_prune_what_the_reference_does_visit_by_visit() -> None:
    """With one virtual loss and with four, whose batches have the same leaves."""
    asked_for = searches()
    assert len(asked_for) == 24 and {wanted.losses for wanted in asked_for} == {1, 4}
    reduced = 0
    for wanted in asked_for:
        grown, side = searched(wanted), 1 if len(wanted.moves) % 2 == 0 else -1
        tries = grown.tries[0, 0]
        expected = {action: visits for action, (visits, _, _) in wanted.children.items()}
        assert grown.visits[0, 0] == wanted.visits
        assert {action: int(tries[action]) for action in np.flatnonzero(tries).tolist()} == expected
        assert search.root_quality(grown, 0) * side == pytest.approx(wanted.quality, abs=1e-6)
        for action, (_, value, prior) in wanted.children.items():
            assert grown.value[0, 0, action] == pytest.approx(value, abs=1e-4)
            assert grown.prior[0, 0, action] == pytest.approx(prior, abs=1e-6)
        search.prune(grown, 0, game.geometry(wanted.size), False)
        assert {action: int(tries[action]) for action in np.flatnonzero(tries).tolist()} == wanted.pruned
        reduced += sum(expected.values()) - sum(wanted.pruned.values())
    assert reduced > 100
