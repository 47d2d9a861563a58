"""The rules of Go, against an implementation that follows them word by word."""

from __future__ import annotations

import numpy as np
import pytest

from tests.references.slow_go import SlowGo
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.references.minigo import game, scoring
from train_bench.references.minigo.pass_alive import pass_alive

pytestmark = pytest.mark.usefixtures("engine")


def legal_points(positions: game.Positions, number: int, size: int) -> list[int]:
    legal = np.empty(size * size + 1, np.bool_)
    game.legal_moves(positions, number, game.geometry(size), legal)
    assert legal[size * size]
    return np.flatnonzero(legal[:-1]).tolist()


def stones(positions: game.Positions, number: int, size: int) -> dict[tuple[int, int], int]:
    board = positions.recent[number, 0]
    return {divmod(point, size): int(board[point]) for point in range(size * size) if board[point]}


def planes_of(positions: game.Positions, number: int, size: int, symmetry: int = 0) -> np.ndarray:
    geometry = game.geometry(size)
    planes = np.empty((13, size * size), np.uint8)
    moved = geometry.symmetries[symmetry]
    legal = np.empty(size * size + 1, np.bool_)
    game.legal_moves(positions, number, geometry, legal)
    game.write_planes(planes, positions.recent[number], positions.to_play[number], legal, geometry, moved)
    return planes.reshape(13, size, size)


def owners(board: np.ndarray, size: int) -> dict[tuple[int, int], int]:
    """Whose the points of pass-alive regions are."""
    owner = pass_alive(board, game.geometry(size))
    return {divmod(point, size): int(owner[point]) for point in np.flatnonzero(owner).tolist()}


def board_of(rows: str) -> np.ndarray:
    return np.array([{".": 0, "X": 1, "O": -1}[sign] for sign in rows if sign in ".XO"], dtype=np.int8)


def position_of(rows: str, to_play: int = game.BLACK) -> tuple[game.Positions, int]:
    """One game that stands at a picture, without a past."""
    board = board_of(rows)
    size = int(board.size**0.5)
    positions = game.new_games(1, size)
    positions.recent[0] = board
    positions.to_play[0] = to_play
    key = np.uint64(0)
    for point in np.flatnonzero(board):
        key ^= game.geometry(size).zobrist[1 if board[point] > 0 else 0, point]
    positions.key[0] = key
    game.remember(positions.seen[0], key)
    return positions, size


@pytest.mark.parametrize(
    ("size", "games", "checked_every"),
    others_in_full([(3, 200, 1), (4, 60, 1), (5, 40, 3), (9, 6, 9)], [(3, 200, 1)]),
)
def test_random_games_agree_with_the_rules_word_by_word(size: int, games: int, checked_every: int) -> None:
    """Small boards are where positions repeat."""
    rng = np.random.default_rng(size)
    geometry = game.geometry(size)
    positions = game.new_games(games, size)
    repetitions = 0
    for number in range(games):
        slow = SlowGo(size)
        for ply in range(2 * size * size):
            mine = legal_points(positions, number, size)
            if ply % checked_every == 0:
                assert mine == [row * size + column for row, column in slow.legal()]
                past, slow.earlier = slow.earlier, set()
                repetitions += len(slow.legal()) - len(mine)
                slow.earlier = past
                assert planes_of(positions, number, size).tolist() == slow.planes()
                assert owners(positions.recent[number, 0], size) == slow.pass_alive()
            action = int(rng.choice(mine)) if mine else size * size
            game.play(positions, number, action, geometry)
            slow.play(divmod(action, size) if mine else None)
            if slow.over():
                break
        assert stones(positions, number, size) == slow.stones
        board = positions.recent[number, 0]
        assert scoring.area(board, geometry) == slow.area()
        assert scoring.is_settled(board, geometry) == slow.settled()
        assert game.is_over(int(positions.passes_in_a_row[number])) == slow.over()
        assert positions.ply[number] == slow.ply
    assert repetitions > 10 or size > 4, "no superko was met"


def compare_playouts(size: int, games: int, seed: int) -> None:
    """At each move of random games, the move and a point at random are as legal here as they are there, and
    both end on the same board."""
    rng = np.random.default_rng(seed)
    positions = game.new_games(1, size)
    for _ in range(games):
        game.restart(positions, 0)
        slow = SlowGo(size)
        while not slow.over() and slow.ply < 2 * size * size:
            mine = legal_points(positions, 0, size)
            other = int(rng.integers(size * size))
            assert (other in mine) == (slow.after(divmod(other, size)) is not None)
            action = int(rng.choice(mine)) if mine else size * size
            game.play(positions, 0, action, game.geometry(size))
            slow.play(divmod(action, size) if mine else None)
        assert stones(positions, 0, size) == slow.stones
        assert scoring.area(positions.recent[0, 0], game.geometry(size)) == slow.area()


@pytest.mark.parametrize(("size", "games"), [(9, 20), (19, 3)])
def test_large_boards_agree_with_the_rules_word_by_word(size: int, games: int) -> None:
    compare_playouts(size, games, seed=0)


@pytest.mark.parametrize(("size", "games"), [(4, 40), (5, 15)])
def test_whole_playouts_end_on_the_board_that_slow_ones_end_on(size: int, games: int) -> None:
    draws = np.random.default_rng(1).random((games, 2 * size * size))
    positions = game.new_games(games, size)
    game.random_playouts(positions, game.geometry(size), draws)
    for number in range(games):
        slow = SlowGo(size)
        while not slow.over() and slow.ply < 2 * size * size:
            legal = slow.legal()
            slow.play(legal[int(draws[number, slow.ply] * len(legal))] if legal else None)
        assert stones(positions, number, size) == slow.stones
        assert positions.ply[number] == slow.ply


def test_the_engine_computes_the_same_when_it_is_not_compiled() -> None:
    """The plain functions behind the compiled ones, called from each other compiled."""
    draws = np.random.default_rng(2).random((3, 32))
    geometry = game.geometry(4)
    fast, plain = game.new_games(3, 4), game.new_games(3, 4)
    game.random_playouts(fast, geometry, draws)
    game.random_playouts.py_func(plain, geometry, draws)  # type: ignore[attr-defined]
    for one, other in zip(fast, plain, strict=True):
        assert np.array_equal(one, other)


def test_a_chain_without_liberties_is_taken_off() -> None:
    positions, size = position_of(".OX. OOX. XX.. ....", game.BLACK)
    assert legal_points(positions, 0, size)[0] == 0
    game.play_checked(positions, 0, 0, size)
    assert stones(positions, 0, size) == {(0, 0): 1, (0, 2): 1, (1, 2): 1, (2, 0): 1, (2, 1): 1}


def test_suicide_is_illegal_and_says_so() -> None:
    positions, size = position_of(".OX. O.X. XX.. ....", game.BLACK)
    with pytest.raises(RequestError, match="Black at A4, is illegal: it is suicide"):
        game.play_checked(positions, 0, 0, size)


def test_a_ko_cannot_be_taken_back_at_once_but_after_a_move_elsewhere() -> None:
    """The later position is another one."""
    positions, size = position_of(".XO. X.XO .XO. ....", game.WHITE)
    game.play_checked(positions, 0, 5, size)
    with pytest.raises(RequestError, match="as it was before"):
        game.play_checked(positions, 0, 6, size)
    game.play_checked(positions, 0, 12, size)
    game.play_checked(positions, 0, 15, size)
    game.play_checked(positions, 0, 6, size)


def test_an_occupied_point_a_point_outside_and_a_move_after_the_end_are_refused() -> None:
    positions, size = position_of("X... .... .... ....", game.WHITE)
    with pytest.raises(RequestError, match="White at A4, is illegal: there is a stone"):
        game.play_checked(positions, 0, 0, size)
    with pytest.raises(RequestError, match="Action 17 is not on a board of 4 x 4"):
        game.play_checked(positions, 0, 17, size)
    game.play_checked(positions, 0, 16, size)
    game.play_checked(positions, 0, 16, size)
    with pytest.raises(RequestError, match="after the end"):
        game.play_checked(positions, 0, 1, size)


def test_a_board_has_2_to_19_points_a_side() -> None:
    for size in (1, 20):
        with pytest.raises(RequestError, match=f"2 to 19 points a side; this one has {size}"):
            game.geometry(size)


def test_area_counts_regions_that_one_side_alone_touches_and_komi_is_whites() -> None:
    board, geometry = board_of(".XO. .XO. .XO. .X.O"), game.geometry(4)
    assert scoring.area(board, geometry) == 8 - 7
    assert [scoring.winner(board, komi, geometry) for komi in (0.5, 1.0, 1.5)] == [1, 0, -1]


def test_symmetries_take_planes_and_actions_the_same_way() -> None:
    positions = game.new_games(1, 5)
    for action in (1, 7, 12, 3):
        game.play(positions, 0, action, game.geometry(5))
    plain = planes_of(positions, 0, 5).reshape(13, 25)
    seen = set()
    for symmetry in range(8):
        moved = game.geometry(5).symmetries[symmetry]
        assert moved[25] == 25 and sorted(moved) == list(range(26))
        turned = planes_of(positions, 0, 5, symmetry).reshape(13, 25)
        assert np.array_equal(turned[:, moved[:25]], plain)
        seen.add(tuple(moved))
    assert len(seen) == 8


def test_neighbours_stay_neighbours_under_every_symmetry() -> None:
    geometry = game.geometry(4)
    pairs = {(p, q) for p in range(16) for q in geometry.neighbours[p] if q >= 0}
    for moved in geometry.symmetries:
        assert {(moved[p], moved[q]) for p, q in pairs} == pairs


def test_a_game_may_have_more_moves_than_its_table_was_made_for() -> None:
    """Superko is remembered from the first move to the last, whatever the length."""
    draws = np.random.default_rng(3).random((1, 200))
    small, large = game.new_games(1, 4, 8), game.new_games(1, 4, 400)
    for ply in range(200):
        moves = legal_points(large, 0, 4)
        assert legal_points(small, 0, 4) == moves
        action = moves[int(draws[0, ply] * len(moves))] if moves else 16
        small = game.with_room(small)
        for positions in (small, large):
            game.play(positions, 0, action, game.geometry(4))
    assert small.seen.shape[1] > game.new_games(1, 4, 8).seen.shape[1]
    assert set(small.seen[small.seen > 0]) == set(large.seen[large.seen > 0])


def test_a_board_is_drawn_with_its_coordinates() -> None:
    positions, size = position_of("X.. .O. ...")
    assert game.picture(positions, 0, size) == " 3 X . .\n 2 . O .\n 1 . . .\n   A B C"
    assert [game.name_of(action, 19) for action in (0, 8, 360, 361)] == ["A19", "J19", "T1", "pass"]
