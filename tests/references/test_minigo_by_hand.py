"""What the engine of the published reference does where its texts can be read otherwise, on positions and numbers that
were worked out by hand. In pictures of boards X is Black and O White."""

from __future__ import annotations

import numpy as np
import pytest

from tests.references.configs import minigo
from tests.references.slow_go import SlowGo
from tests.references.test_minigo_game import board_of, legal_points, owners, planes_of, position_of
from tests.references.test_minigo_search import material, nothing_known
from train_bench.references.minigo import game, scoring, search, trees
from train_bench.references.minigo.quality import Match, _Player
from train_bench.references.minigo.selfplay import Record, SelfPlay, _Game, draw

pytestmark = pytest.mark.usefixtures("engine")


def plane(rows: str) -> list[list[int]]:
    return [[int(sign == "1") for sign in row] for row in rows.split()]


def slow_of(rows: str) -> SlowGo:
    board = board_of(rows)
    slow = SlowGo(int(board.size**0.5))
    slow.stones = {divmod(point, slow.size): int(board[point]) for point in np.flatnonzero(board).tolist()}
    return slow


def test_liberties_are_counted_up_to_three_or_more() -> None:
    """Black's corner stone has one, White's two stones have four, Black's on the edge three, in the middle four, and
    White's in the corner two."""
    positions, size = position_of("XO... .O... X.... ...X. ....O", game.WHITE)
    planes = planes_of(positions, 0, size)
    assert planes[9].tolist() == plane("10000 00000 00000 00000 00000")
    assert planes[10].tolist() == plane("00000 00000 00000 00000 00001")
    assert planes[11].tolist() == plane("01000 01000 10000 00010 00000")
    assert planes[12].tolist() == plane("00000 10000 00000 00000 00000")


def test_a_capture_that_superko_forbids_is_none() -> None:
    """White takes the ko at B3. Black may take it back at C3 after a move elsewhere, and not before."""
    positions, size = position_of(".XO. X.XO .XO. ....", game.WHITE)
    nothing, taken = plane("0000 0000 0000 0000"), plane("0000 0010 0000 0000")
    assert planes_of(positions, 0, size)[12].tolist() == plane("0000 0100 0000 0000")
    game.play(positions, 0, 5, game.geometry(size))
    assert 6 not in legal_points(positions, 0, size)
    assert planes_of(positions, 0, size)[12].tolist() == nothing
    for action in (12, 15):
        game.play(positions, 0, action, game.geometry(size))
    assert 6 in legal_points(positions, 0, size)
    assert planes_of(positions, 0, size)[12].tolist() == taken


DEAD_STONE = ".XO.X XXXXX XXXXX XXXXX XXXXX"
"""Black has two eyes, and in one of them a white stone: all 25 points are Black's."""

ONE_OUT_OF_REACH = ".X.X. XXXXX XXXXX OXXXX ..XXX"
"""Black's region in the corner has one empty point that touches no black stone, A1: all is Black's."""

TWO_OUT_OF_REACH = ".X.X. XXXXX ..XXX .OXXX ..XXX"
"""It has two, A2 and A1. White may live there: 16 stones and three eyes to one stone."""

ONE_EYE = "..XXO XXXXO OOOOO ..... ....."
"""Nobody is alive: 6 stones and an eye of 2 points to 7 stones and 10 points."""


@pytest.mark.parametrize(
    ("rows", "owned", "area", "settled"),
    [
        (DEAD_STONE, [(0, 0), (0, 2), (0, 3)], 25, True),
        (ONE_OUT_OF_REACH, [(0, 0), (0, 2), (0, 4), (3, 0), (4, 0), (4, 1)], 25, True),
        (TWO_OUT_OF_REACH, [(0, 0), (0, 2), (0, 4)], 18, False),
        (ONE_EYE, [], -9, False),
    ],
)
def test_pass_alive_regions_are_their_owners_with_the_dead_stones_in_them(
    rows: str, owned: list[tuple[int, int]], area: int, settled: bool
) -> None:
    board, geometry = board_of(rows), game.geometry(5)
    assert owners(board, 5) == dict.fromkeys(owned, 1) == slow_of(rows).pass_alive()
    assert owners(-board, 5) == dict.fromkeys(owned, -1)
    assert scoring.area(board, geometry) == -scoring.area(-board, geometry) == area == slow_of(rows).area()
    assert scoring.is_settled(board, geometry) == settled == slow_of(rows).settled()


def test_a_chain_that_is_not_alive_takes_an_eye_from_others_only_where_it_has_a_liberty() -> None:
    """Black's large chain has the eyes E3 and D1. His pair in the corner is not alive and touches the region of D1,
    which has a stone of White's in it, but has no liberty there: the reference leaves the eye, against the theorem.
    It is the same with White's large chain, the corner region and the stone at C1. The two regions that both kinds of
    chains enclose belong to nobody."""
    rows = ".OOXX OOOXX .OOX. .OXXX XXO.X"
    assert owners(board_of(rows), 5) == {(0, 0): -1, (2, 4): 1} == slow_of(rows).pass_alive()


def a_tree(points: int, moves: dict[int, tuple[int, float, float]], visits: int) -> trees.Trees:
    """Of a root at which Black plays and every move of `moves` has visits, W and a prior."""
    found = trees.new_trees(1, 4, points)
    trees.clear_node(found, 0, 0)
    found.to_play[0, 0], found.visits[0, 0], found.expanded[0, 0] = game.BLACK, visits, True
    for action, (tries, value, prior) in moves.items():
        found.tries[0, 0, action], found.value[0, 0, action] = tries, value
        found.prior[0, 0, action] = prior
    return found


def test_pruned_visits_follow_the_reference_in_figures() -> None:
    """10 visits: 2 (ln(19663 / 19652) + 1.25) = 2.50112. The best move's limit is 0 / 7 + 2.50112 sqrt(11) 0.5 / 7 =
    0.5925; the second one's mean is -1 / 4, so it keeps 2.50112 sqrt(10) 0.3 / (0.5925 + 0.25) = 2.82 rounded down; the
    mean of the third one, 0.8, exceeds the limit."""
    found = a_tree(4, {0: (6, 0.0, 0.5), 1: (3, -1.0, 0.3), 2: (1, 1.6, 0.1), 4: (0, 0.0, 0.1)}, 10)
    search.prune(found, 0, game.geometry(2), False)
    assert found.tries[0, 0].tolist() == [6, 2, 0, 0, 0]


def test_of_moves_with_equal_visits_the_one_with_the_higher_score_is_played() -> None:
    found = a_tree(4, {0: (5, 0.1, 0.3), 1: (5, 0.9, 0.3), 2: (4, 3.0, 0.3), 4: (0, 0.0, 0.1)}, 15)
    assert search.most_visited(found, 0, game.geometry(2), False) == 1


def test_a_side_that_is_barred_from_pass_alive_regions_plays_and_learns_another_move() -> None:
    moves = {0: (6, 3.0, 0.4), 15: (3, 1.0, 0.3), 25: (2, 1.0, 0.3)}
    for barred, action, kept in ((False, 0, 6), (True, 15, 0)):
        found = a_tree(25, moves, 12)
        found.board[0, 0] = board_of(TWO_OUT_OF_REACH)
        assert search.most_visited(found, 0, game.geometry(5), barred) == action
        search.prune(found, 0, game.geometry(5), barred)
        assert found.tries[0, 0, 0] == kept
    only = a_tree(25, {0: (6, 3.0, 0.5), 25: (0, 1.0, 0.5)}, 7)
    only.board[0, 0] = board_of(TWO_OUT_OF_REACH)
    assert search.most_visited(only, 0, game.geometry(5), True) == 25
    search.prune(only, 0, game.geometry(5), True)
    assert np.flatnonzero(only.tries[0, 0]).tolist() == [25] and only.tries[0, 0, 25] == 1


def test_nobody_passes_by_lot_unless_every_visit_is_on_the_pass() -> None:
    rng = np.random.default_rng(0)
    assert {draw(np.array([0, 1, 0, 99]), 0.98, rng) for _ in range(50)} == {1}
    assert draw(np.array([0, 0, 0, 7]), 0.98, rng) == 3


def selfplay(*overrides: str) -> SelfPlay:
    """Self-play on 5x5 with one game at a time, whose moves are the most visited ones from the first on."""
    return SelfPlay(minigo("minigo_mini", "search.games_at_once=1", "search.soft_moves=0", *overrides))


def moved(play: SelfPlay, this: _Game, tries: dict[int, int]) -> Record | None:
    """Make the move that follows where the search has tried these, and learn nothing from it."""
    this.slow = False
    legal = np.empty(play.points + 1, np.bool_)
    game.legal_moves(play.positions, 0, play.geometry, legal)
    trees.plant(play.trees, play.positions, 0)
    play.trees.expanded[0, 0], play.trees.visits[0, 0] = True, 1 + sum(tries.values())
    play.trees.prior[0, 0] = np.where(legal, 1 / 26, -1.0)
    for action, count in tries.items():
        play.trees.tries[0, 0, action] = count
    return play._move(this, 0)


def begun(play: SelfPlay, rows: str, to_play: int) -> _Game:
    """A game of `play` that stands at this board."""
    positions, _ = position_of(rows, to_play)
    for mine, other in zip(play.positions, positions, strict=True):
        mine[0] = other[0]
    return _Game(number=0, rng=np.random.default_rng(0), resign_below=-2.0)


def test_consecutive_passes_of_the_other_side_bar_pass_alive_regions_for_good() -> None:
    """Four of White's moves in a row. A stone of White's between them begins the count anew, and one after them, or
    passes of Black, change nothing."""
    play, inside, outside = selfplay(), {0: 9, 15: 3}, {10: 9}
    for white_passed, action in ((3, 0), (4, 15)):
        this = begun(play, TWO_OUT_OF_REACH, game.BLACK)
        this.passed = [0, white_passed]
        moved(play, this, inside)
        assert this.moves == [action]
    for before, tries, after in (
        ([2, 3], {25: 5}, [2, 4]),
        ([2, 3], outside, [2, 0]),
        ([2, 4], outside, [2, 4]),
    ):
        this = begun(play, TWO_OUT_OF_REACH, game.WHITE)
        this.passed = before
        moved(play, this, tries)
        assert this.passed == after


def test_a_game_is_over_once_every_empty_point_is_pass_alive() -> None:
    """Black's stone at B2 leaves A1 alone out of reach: 25 points less komi of 2.5."""
    play = selfplay()
    this = begun(play, ".X.X. XXXXX ..XXX ..XXX ..XXX", game.BLACK)
    record = moved(play, this, {16: 4})
    assert record is not None
    assert (record.moves, record.winner, record.margin) == ([16], 1, 22.5)


def test_a_slow_move_reads_the_visits_of_the_tree_that_was_kept_once_more() -> None:
    play = selfplay("search.readouts=24", "search.fast_readouts=8", "search.fast_frequency=0.5")
    this = begun(play, ONE_EYE, game.BLACK)
    this.moves = [3]
    seen = set()
    for _ in range(40):
        trees.plant(play.trees, play.positions, 0)
        play.trees.visits[0, 0] = 37
        play._look_for_a_move(this, 0)
        seen.add((this.slow, int(play.trees.visits[0, 0]), int(play.goals[0])))
    assert seen == {(True, 0, 37 + 24), (False, 37, 37 + 8)}


def test_the_first_move_of_a_game_is_never_fast() -> None:
    play = selfplay("search.fast_frequency=0.95", "search.readouts=8")
    for record in play.play(nothing_known, range(6), seed=1):
        first = np.unpackbits(record.planes[0])[: 13 * 25].reshape(13, 25)
        assert first[8].all() and not first[[*range(8), *range(9, 13)]].any()


def test_a_side_resigns_by_the_value_of_the_root_and_its_last_position_is_not_learnt() -> None:
    """W / (1 + N) with W = -9 and N = 10 is -0.82 for Black."""
    play = selfplay()
    for threshold, resigns in ((-0.81, True), (-0.82, False)):
        this = begun(play, ONE_EYE, game.BLACK)
        this.resign_below, this.slow = threshold, True
        trees.plant(play.trees, play.positions, 0)
        play.trees.prior[0, 0] = np.where(board_of(ONE_EYE + "O") == game.EMPTY, 0.1, -1.0)
        play.trees.prior[0, 0, 25] = 0.1
        play.trees.expanded[0, 0], play.trees.visits[0, 0], play.trees.root_value[0] = True, 10, -9.0
        play.trees.tries[0, 0, 20] = 9
        assert search.root_quality(play.trees, 0) == pytest.approx(-9 / 11)
        record = play._move(this, 0)
        assert (record is not None) == resigns
        assert len(this.planes) == (0 if resigns else 1)
        if record is not None:
            assert (record.winner, record.margin, record.moves) == (-1, None, [])


BARE_MATCH = ("model.board_size=4", "search.komi=0.5", "match.readouts=12")


def test_nothing_of_a_match_is_drawn_by_lot() -> None:
    """With networks that see all symmetries alike, every game is the same whatever the seed: Black wins all or none."""
    config = minigo("minigo_mini", *BARE_MATCH, "match.opening_moves=0")
    match = Match(config)
    assert {match.play(nothing_known, nothing_known, range(12), seed) for seed in range(4)} == {6}
    assert len({match.play(material, nothing_known, range(12), seed) for seed in range(4)}) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_every_opening_of_a_match_is_played_with_both_colours_and_is_the_same_in_every_match(
    seed: int,
) -> None:
    """Between equals the colour that an opening favours wins both games, whoever has it; it is not always the same."""
    match = Match(minigo("minigo_mini", *BARE_MATCH, "match.opening_moves=3"))
    with_black = [match.play(nothing_known, nothing_known, [number], seed) for number in range(0, 24, 2)]
    with_white = [match.play(nothing_known, nothing_known, [number], seed) for number in range(1, 24, 2)]
    assert [1 - won for won in with_black] == with_white
    assert with_black == [match.play(nothing_known, nothing_known, [number], 7) for number in range(0, 24, 2)]
    assert 0 < sum(with_black) < 12


def test_both_sides_of_a_match_keep_their_trees() -> None:
    config = minigo("minigo_mini", "model.board_size=4", "match.readouts=20")
    positions, one_game = game.new_games(1, 4), np.zeros(1, np.int32)
    players = [_Player(config, material, positions, np.zeros(1, np.uint64)) for _ in range(2)]
    goals: list[list[int]] = [[], []]
    for ply in range(6):
        player = players[ply % 2]
        player.look_for_a_move(0)
        goals[ply % 2].append(int(player.goals[0] - player.trees.visits[0, 0]))
        while not len(player.think(positions, one_game)):
            pass
        assert player.trees.visits[0, 0] >= player.goals[0]
        action = int(search.most_visited(player.trees, 0, player.geometry, True))
        kept = int(player.trees.tries[0, 0, action])
        game.play(positions, 0, action, player.geometry)
        for one in players:
            trees.advance(one.trees, positions, 0, action)
        assert player.trees.visits[0, 0] == kept > 0
    assert goals == [[20, 20, 20], [20, 20, 20]]
    assert players[0].trees.visits[0, 0] > 0
