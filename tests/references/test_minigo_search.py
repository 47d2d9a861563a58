"""The tree search: against a plain one, and on positions whose answer is known."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.references.configs import minigo
from tests.references.slow_go import SlowGo
from tests.references.slow_search import SlowSearch
from tests.references.test_minigo_game import position_of
from train_bench.references.minigo import game, scoring, search, trees
from train_bench.references.minigo.selfplay import SelfPlay, draw, softened

pytestmark = pytest.mark.usefixtures("engine")


def opinion(stones: list[int], to_play: int) -> tuple[np.ndarray, float]:
    """Probabilities in sixteenths and a value in eighths that follow from a position, so that sums are exact."""
    text = ",".join(map(str, [*stones, to_play])).encode()
    digest = hashlib.sha256(text).digest() + hashlib.sha256(text + b"!").digest()
    weights = np.array([digest[number] % 16 + 1 for number in range(len(stones) + 1)], np.float32)
    return weights / np.float32(512), (digest[-1] % 17 - 8) / 8


def of_planes(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `opinion` says of the planes of a batch."""
    answers = []
    for seen in planes:
        black = bool(seen[8].any())
        mine = (seen[0].astype(int) - seen[1]) * (1 if black else -1)
        answers.append(opinion(mine.tolist(), 1 if black else -1))
    return np.array([p for p, _ in answers], np.float32), np.array([v for _, v in answers], np.float32)


def of_position(position: SlowGo) -> tuple[list[float], float]:
    stones = [position.stones.get(point, 0) for point in position.points()]
    probabilities, value = opinion(stones, position.to_play)
    return probabilities.astype(float).tolist(), value


def searched(
    positions: game.Positions, size: int, goal: int, infer=of_planes, *, noise=None, manner=None, grown=None
):
    """The trees of all games, grown to `goal` visits."""
    count, points = len(positions.ply), size * size
    manner = manner or search.Manner(komi=0.5, virtual_losses=4, value_init_penalty=0.25, passes_from=0)
    geometry = game.geometry(size)
    if grown is None:
        grown = trees.new_trees(count, goal + 8, points)
        for number in range(count):
            trees.plant(grown, positions, number)
    games, goals = np.arange(count, dtype=np.int32), np.full(count, goal, np.int32)
    salts = np.zeros(count, np.uint64)
    planes = np.empty((4 * count, 13, points), np.uint8)
    leaves = np.empty((4 * count, 3), np.int32)
    while (grown.visits[:, 0] < goals).any():
        fresh = ~grown.expanded[:, 0]
        found = search.select(grown, positions, games, goals, salts, manner, geometry, planes, leaves)
        if found:
            upright = planes[:found].copy()
            for number in range(found):
                upright[number] = planes[number][:, geometry.symmetries[leaves[number, 2], :points]]
            probabilities, values = infer(upright)
            turned = probabilities.copy()
            for number in range(found):
                turned[number, geometry.symmetries[leaves[number, 2]]] = probabilities[number]
            search.incorporate(grown, leaves[:found], turned, values, manner, geometry)
        for number in np.flatnonzero(fresh):
            if noise is not None:
                search.mix_noise(grown, int(number), np.array(noise[number]), 0.25)
    return grown


@pytest.mark.parametrize(("size", "games", "goal"), [(3, 8, 160), (5, 4, 200)])
def test_all_trees_together_grow_as_each_one_does_in_a_plain_search(size: int, games: int, goal: int) -> None:
    """On 3x3 many walks end where the game is over or where positions repeat."""
    rng = np.random.default_rng(size)
    geometry, positions = game.geometry(size), game.new_games(games, size)
    slow = [SlowGo(size) for _ in range(games)]
    for number in range(games):
        for _ in range(number * 2):
            legal = slow[number].legal()
            point = legal[int(rng.integers(len(legal)))] if legal else None
            slow[number].play(point)
            game.play(positions, number, point[0] * size + point[1] if point else size * size, geometry)
            if slow[number].over():
                break
    noises = [rng.dirichlet(np.full(len(one.legal()) + 1, 0.5)).astype(np.float32).tolist() for one in slow]
    running = [number for number in range(games) if not slow[number].over()]
    kept = game.Positions(*(array[running] for array in positions))
    found = searched(kept, size, goal, noise=[noises[number] for number in running])
    for place, number in enumerate(running):
        plain = SlowSearch(slow[number], of_position, komi=0.5, losses=4, penalty=0.25)
        plain.grow(goal, noises[number], 0.25)
        expected = [plain.root.tries.get(action, 0) for action in range(size * size + 1)]
        assert found.tries[place, 0].tolist() == expected
        assert found.visits[place, 0] == plain.root.visits and goal <= plain.root.visits < goal + 4
        assert search.root_quality(found, place) == pytest.approx(plain.quality(), abs=1e-6)
        values = [plain.root.value.get(action, 0.0) for action in range(size * size + 1)]
        assert found.value[place, 0].tolist() == pytest.approx(values, abs=1e-6)
    assert len(running) > games // 2


def nothing_known(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    actions = planes.shape[2] + 1
    return np.full((len(planes), actions), 1 / actions, np.float32), np.zeros(len(planes), np.float32)


def material(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who has more stones is ahead."""
    black = planes[:, 8].any(axis=1)
    ahead = planes[:, 0].sum(axis=1).astype(int) - planes[:, 1].sum(axis=1)
    return nothing_known(planes)[0], np.tanh(np.where(black, ahead, -ahead) / 4).astype(np.float32)


def test_a_capture_that_decides_is_found() -> None:
    """White's three stones have one liberty, C5."""
    positions, size = position_of("XO.X. XOX.. XOX.. .X... .....", game.BLACK)
    found = searched(positions, size, 400, material)
    assert int(found.tries[0, 0].argmax()) == 2


def test_a_win_in_two_moves_is_found_by_its_result_alone() -> None:
    """White is ahead until Black takes eight stones at E3; if White passes then, Black wins with a pass."""
    positions, size = position_of("XOOOO XOOOO XXXX. ..X.. .....", game.BLACK)
    found = searched(positions, size, 400, nothing_known)
    assert int(found.tries[0, 0].argmax()) == 14


def test_a_pass_that_wins_is_found() -> None:
    """Black leads and White has just passed."""
    positions, size = position_of("XX.X. XXXXX .X.X. XXXXX .....", game.WHITE)
    game.play(positions, 0, 25, game.geometry(size))
    found = searched(positions, size, 200, nothing_known)
    assert int(found.tries[0, 0].argmax()) == 25
    assert search.root_quality(found, 0) > 0.5


def test_what_was_learnt_behind_a_move_is_kept_when_it_is_played() -> None:
    positions = game.new_games(2, 5)
    found = searched(positions, 5, 150)
    action = int(found.tries[1, 0].argmax())
    child = found.child[1, 0, action]
    before = (found.visits[1, child], found.tries[1, child].tolist(), found.value[1, child].tolist())
    grandchild = found.child[1, child, found.tries[1, child].argmax()]
    below = found.tries[1, grandchild].tolist()
    game.play(positions, 1, action, game.geometry(5))
    trees.advance(found, positions, 1, action)
    assert (found.visits[1, 0], found.tries[1, 0].tolist(), found.value[1, 0].tolist()) == before
    moved = found.child[1, 0, found.tries[1, 0].argmax()]
    assert found.tries[1, moved].tolist() == below and found.parent[1, moved] == 0
    assert found.used[1] <= before[0] + 1
    more = searched(positions, 5, int(before[0]) + 40, grown=found)
    assert (more.tries[1, 0] >= before[1]).all()


@pytest.mark.parametrize(("ply", "considered"), [(5, False), (6, True)])
def test_nobody_passes_early_in_a_game_where_that_is_asked_for(ply: int, considered: bool) -> None:
    """On the other board every point is taken or suicide, so that a pass is all there is."""
    manner = search.Manner(komi=0.5, virtual_losses=1, value_init_penalty=0.0, passes_from=6)
    for picture, only_pass in (("X... .... .... ....", False), (".X.X XXXX XXXX X.XX", True)):
        positions, size = position_of(picture, game.WHITE)
        positions.ply[0] = ply
        found = searched(positions, size, 1, nothing_known, manner=manner)
        assert (found.prior[0, 0, size * size] > 0.0) == (considered or only_pass)


def test_a_drawn_move_follows_the_visits_of_points() -> None:
    tries = np.array([0, 30, 0, 10, 25], np.int32)
    rng = np.random.default_rng(0)
    drawn = np.bincount([draw(tries, 0.98, rng) for _ in range(4000)], minlength=5) / 4000
    expected = softened(tries[:4], 0.98)
    assert expected[1] == pytest.approx(30**0.98 / (30**0.98 + 10**0.98))
    assert drawn == pytest.approx([*expected, 0.0], abs=0.03)


def test_trees_that_outgrow_their_memory_lose_nothing() -> None:
    positions = game.new_games(2, 5)
    small = searched(positions, 5, 60)
    large = trees.with_room(small, 200)
    assert large.board.shape[1] >= 200 and trees.with_room(large, 200) is large
    for once, again in zip(
        searched(positions, 5, 150), searched(positions, 5, 150, grown=large), strict=True
    ):
        used = slice(None) if once.ndim == 1 else (slice(None), slice(100))
        assert np.array_equal(once[used], again[used])


@pytest.fixture(scope="module")
def records():
    overrides = (
        "model.board_size=5",
        "search.games_at_once=6",
        "search.readouts=12",
        "search.fast_readouts=6",
    )
    config = minigo("minigo_mini", *overrides)
    play = SelfPlay(config)
    return config, {record.number: record for record in play.play(nothing_known, range(10), seed=7)}


def test_every_game_is_legal_and_ends_as_its_record_says(records) -> None:
    config, games = records
    assert sorted(games) == list(range(10))
    for record in games.values():
        positions = game.new_games(1, 5)
        for action in record.moves:
            game.play_checked(positions, 0, action, 5)
        if record.margin is not None:
            margin = scoring.area(positions.recent[0, 0], game.geometry(5)) - config.search.komi
            assert abs(margin) == record.margin and np.sign(margin) == record.winner
        assert np.allclose(record.policies.astype(float).sum(axis=1), 1.0, atol=0.01)
        assert len(record.planes) == len(record.policies) <= len(record.moves) + 1


def test_a_game_depends_on_its_number_and_not_on_those_beside_it(records) -> None:
    config, games = records
    alone = next(iter(SelfPlay(config).play(nothing_known, [3], seed=7)))
    assert alone.moves == games[3].moves and np.array_equal(alone.policies, games[3].policies)
    assert games[3].moves != games[4].moves
