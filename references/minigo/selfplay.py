"""Self-play: games of a network against itself, many in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from train_bench.references.minigo import game, scoring, search, trees
from train_bench.references.minigo.config import Config
from train_bench.seeds import derive

Infer = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""uint8 (k, 13, n) planes -> float32 (k, n + 1) probabilities and float32 (k,) values from Black's side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A game that is over.

    number    which game of its generation
    moves     actions, Black's first
    winner    1, -1, or 0
    margin    area by which the winner is ahead, komi included; None: the other side resigned
    planes    uint8 (k, bytes), the input planes of the k positions to learn from, eight points a byte
    policies  float16 (k, n + 1), what the search made of them
    """

    number: int
    moves: list[int]
    winner: int
    margin: float | None
    planes: np.ndarray
    policies: np.ndarray


@dataclass(slots=True, kw_only=True)
class _Game:
    """A game under way.

    slow    the move that is looked for now will be learnt from
    passed  how often Black and White have passed in their last moves, each; once that is as often as bars the
            other side from pass-alive regions, it stays
    """

    number: int
    rng: np.random.Generator
    resign_below: float
    slow: bool = True
    passed: list[int] = field(default_factory=lambda: [0, 0])
    moves: list[int] = field(default_factory=list)
    planes: list[np.ndarray] = field(default_factory=list)
    policies: list[np.ndarray] = field(default_factory=list)


def manner_of(config: Config) -> search.Manner:
    """The constants of the search."""
    search_config = config.search
    return search.Manner(
        komi=search_config.komi,
        virtual_losses=search_config.virtual_losses,
        value_init_penalty=search_config.value_init_penalty,
        passes_from=search_config.passes_from,
    )


def generator_of(seed: int, number: int) -> np.random.Generator:
    """Random generator of one game, independent of the player and of the other games."""
    return np.random.Generator(np.random.Philox(key=[seed, number]))


def salt_of(rng: np.random.Generator) -> np.uint64:
    """Salt of one game's symmetries."""
    return rng.integers(2**64, dtype=np.uint64)


def softened(tries: np.ndarray, exponent: float) -> np.ndarray:
    """float64, sums to 1: visit counts to this power as a distribution."""
    shares = tries.astype(np.float64) ** exponent
    return shares / shares.sum()


def draw(tries: np.ndarray, exponent: float, rng: np.random.Generator) -> int:
    """An action drawn from the visit counts, int (n + 1,), to this power. It is a point, and a pass only if no point
    was visited."""
    points = tries[:-1]
    if not points.any():
        return len(points)
    bounds = softened(points, exponent).cumsum()
    return min(int(np.searchsorted(bounds, rng.random(), side="right")), int(np.flatnonzero(points)[-1]))


class SelfPlay:
    """The games of one rank, `games_at_once` of them side by side. Memory is taken once, and again where trees or
    games outgrow it."""

    def __init__(self, config: Config) -> None:
        search_config, size = config.search, config.model.board_size
        self.config = config
        self.geometry = game.geometry(size)
        self.points = size * size
        self.manner = manner_of(config)
        lanes = search_config.games_at_once
        self.positions = game.new_games(lanes, size)
        self.trees = trees.new_trees(lanes, 2 * search_config.readouts, self.points)
        self.planes = np.empty((lanes * search_config.virtual_losses, game.PLANES, self.points), np.uint8)
        self.leaves = np.empty((lanes * search_config.virtual_losses, 3), np.int32)
        self.goals = np.zeros(lanes, np.int32)
        self.salts = np.zeros(lanes, np.uint64)
        self.noise_due = np.zeros(lanes, np.bool_)

    def play(self, infer: Infer, numbers: Sequence[int], seed: int) -> Iterator[Record]:
        """Play the games of these numbers; each comes when it is over. As soon as one is, the next begins."""
        waiting = iter(numbers)
        games: dict[int, _Game] = {}
        for lane in range(len(self.goals)):
            self._begin(games, lane, next(waiting, None), seed)
        while games:
            active = np.fromiter(games, np.int32)
            for lane in active[self.noise_due[active] & self.trees.expanded[active, 0]]:
                self._add_noise(games[int(lane)], int(lane))
            self._grow(infer, active)
            for lane in active[self.trees.visits[active, 0] >= self.goals[active]]:
                record = self._move(games[int(lane)], int(lane))
                if record is not None:
                    yield record
                    del games[int(lane)]
                    self._begin(games, int(lane), next(waiting, None), seed)

    def _grow(self, infer: Infer, active: np.ndarray) -> None:
        """Expand and evaluate one batch of leaves."""
        count = search.select(
            *(self.trees, self.positions, active, self.goals, self.salts),
            *(self.manner, self.geometry, self.planes, self.leaves),
        )
        if count:
            policies, values = infer(self.planes[:count])
            search.incorporate(self.trees, self.leaves[:count], policies, values, self.manner, self.geometry)

    def _begin(self, games: dict[int, _Game], lane: int, number: int | None, seed: int) -> None:
        if number is None:
            return
        rng = generator_of(seed, number)
        low, high = self.config.search.resign_between
        self.salts[lane] = salt_of(rng)
        games[lane] = _Game(number=number, rng=rng, resign_below=float(rng.uniform(low, high)))
        game.restart(self.positions, lane)
        trees.plant(self.trees, self.positions, lane)
        self._look_for_a_move(games[lane], lane)

    def _look_for_a_move(self, this: _Game, lane: int) -> None:
        """Start the search for a move. A slow move, as the first of a game is, begins with noise and, where there are
        fast moves, with an empty tree; the visits of the kept tree are repeated. A fast one continues with the kept
        tree."""
        search_config = self.config.search
        this.slow = not this.moves or this.rng.random() >= search_config.fast_frequency
        readouts = search_config.readouts if this.slow else search_config.fast_readouts
        self.goals[lane] = self.trees.visits[lane, 0] + readouts
        if this.slow and search_config.fast_frequency > 0.0:
            trees.plant(self.trees, self.positions, lane)
        more = int(self.goals[lane] - self.trees.visits[lane, 0]) + search_config.virtual_losses
        self.trees = trees.with_room(self.trees, int(self.trees.used[lane]) + more)
        self.noise_due[lane] = this.slow

    def _add_noise(self, this: _Game, lane: int) -> None:
        search_config = self.config.search
        legal = int((self.trees.prior[lane, 0] >= 0.0).sum())
        noise = this.rng.dirichlet(np.full(legal, search_config.noise_concentration))
        search.mix_noise(self.trees, lane, noise, search_config.noise_share)
        self.noise_due[lane] = False

    def _move(self, this: _Game, lane: int) -> Record | None:
        """Make the move that was looked for; the record if the game is over with it, or with no move because the side
        to play resigns."""
        search_config, ply, to_play = self.config.search, len(this.moves), int(self.positions.to_play[lane])
        if search.root_quality(self.trees, lane) < this.resign_below:
            return self._record(this, winner=-to_play, margin=None)
        soft = search_config.soft_exponent if ply < search_config.soft_moves else None
        mine, other = (0, 1) if to_play == game.BLACK else (1, 0)
        barred = this.passed[other] >= search_config.pass_alive_after
        if soft is None:
            action = int(search.most_visited(self.trees, lane, self.geometry, barred))
        else:
            action = draw(self.trees.tries[lane, 0], soft, this.rng)
        if this.slow:
            search.prune(self.trees, lane, self.geometry, barred)
            self._learn(this, lane, soft or 1.0)
        if this.passed[mine] < search_config.pass_alive_after:
            this.passed[mine] = this.passed[mine] + 1 if action == self.points else 0
        this.moves.append(action)
        self.positions = game.with_room(self.positions)
        game.play(self.positions, lane, action, self.geometry)
        board = self.positions.recent[lane, 0]
        over = game.is_over(int(self.positions.passes_in_a_row[lane]))
        if over or scoring.is_settled(board, self.geometry):
            margin = scoring.area(board, self.geometry) - self.manner.komi
            return self._record(this, winner=int(np.sign(margin)), margin=abs(margin))
        trees.advance(self.trees, self.positions, lane, action)
        self._look_for_a_move(this, lane)
        return None

    def _learn(self, this: _Game, lane: int, exponent: float) -> None:
        """Take the position down, with the visits that pruning has left."""
        planes = np.empty((game.PLANES, self.points), np.uint8)
        recent, to_play = self.positions.recent[lane], self.positions.to_play[lane]
        legal = self.trees.prior[lane, 0] >= 0.0
        game.write_planes(planes, recent, to_play, legal, self.geometry, self.geometry.symmetries[0])
        this.planes.append(np.packbits(planes))
        this.policies.append(softened(self.trees.tries[lane, 0], exponent).astype(np.float16))

    def _record(self, this: _Game, *, winner: int, margin: float | None) -> Record:
        packed = -(-game.PLANES * self.points // 8)
        return Record(
            number=this.number,
            moves=this.moves,
            winner=winner,
            margin=margin,
            planes=np.array(this.planes, np.uint8).reshape(-1, packed),
            policies=np.array(this.policies, np.float16).reshape(-1, self.points + 1),
        )


def seed_of_generation(seed: int, generation: int) -> int:
    """Seed of one generation's games."""
    return derive(seed, "selfplay", generation)
