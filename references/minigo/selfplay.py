"""Games that a network plays against itself, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from references.minigo import game, search
from references.minigo.config import Config
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
    """A game under way. `slow`: the move that is looked for now will be learnt from."""

    number: int
    rng: np.random.Generator
    resign_below: float
    slow: bool = True
    moves: list[int] = field(default_factory=list)
    planes: list[np.ndarray] = field(default_factory=list)
    policies: list[np.ndarray] = field(default_factory=list)


def manner_of(config: Config) -> search.Manner:
    """The constants of the search."""
    asked = config.search
    return search.Manner(
        komi=asked.komi,
        virtual_losses=asked.virtual_losses,
        value_init_penalty=asked.value_init_penalty,
        pass_alive_after=asked.pass_alive_after,
        passes_from=asked.passes_from,
    )


def generator_of(seed: int, number: int) -> np.random.Generator:
    """The random numbers of one game, whoever plays it beside which others."""
    return np.random.Generator(np.random.Philox(key=[seed, number]))


def salt_of(rng: np.random.Generator) -> np.uint64:
    """What decides the symmetries of one game."""
    return rng.integers(2**64, dtype=np.uint64)


def softened(tries: np.ndarray, exponent: float) -> np.ndarray:
    """float64 (n + 1,), sums to 1: visit counts to this power as a distribution."""
    shares = tries.astype(np.float64) ** exponent
    return shares / shares.sum()


def choose(tries: np.ndarray, exponent: float | None, rng: np.random.Generator) -> int:
    """An action drawn from the visit counts to this power; None: the most visited one."""
    if exponent is None:
        return int(tries.argmax())
    bounds = softened(tries, exponent).cumsum()
    return min(int(np.searchsorted(bounds, rng.random(), side="right")), int(np.flatnonzero(tries)[-1]))


class SelfPlay:
    """The games of one rank. Memory is taken once, for `games_at_once` trees."""

    def __init__(self, config: Config) -> None:
        asked, size = config.search, config.model.board_size
        self.config = config
        self.geometry = game.geometry(size)
        self.points = size * size
        self.manner = manner_of(config)
        lanes = asked.games_at_once
        self.nodes = asked.readouts + 4 * asked.fast_readouts + asked.virtual_losses + 2
        self.positions = game.new_games(lanes, size)
        self.trees = search.new_trees(lanes, self.nodes, self.points)
        self.planes = np.empty((lanes * asked.virtual_losses, game.PLANES, self.points), np.uint8)
        self.leaves = np.empty((lanes * asked.virtual_losses, 3), np.int32)
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
            self._grow(infer, active)
            for lane in active[self.noise_due[active] & self.trees.expanded[active, 0]]:
                self._add_noise(games[int(lane)], int(lane))
            for lane in active[self.trees.visits[active, 0] >= self.goals[active]]:
                record = self._move(games[int(lane)], int(lane))
                if record is not None:
                    yield record
                    del games[int(lane)]
                    self._begin(games, int(lane), next(waiting, None), seed)

    def _grow(self, infer: Infer, active: np.ndarray) -> None:
        """One batch of leaves."""
        found = search.select(
            *(self.trees, self.positions, active, self.goals, self.salts),
            *(self.manner, self.geometry, self.planes, self.leaves),
        )
        if found:
            policies, values = infer(self.planes[:found])
            search.incorporate(self.trees, self.leaves[:found], policies, values, self.manner, self.geometry)

    def _begin(self, games: dict[int, _Game], lane: int, number: int | None, seed: int) -> None:
        if number is None:
            return
        rng = generator_of(seed, number)
        low, high = self.config.search.resign_between
        self.salts[lane] = salt_of(rng)
        games[lane] = _Game(number=number, rng=rng, resign_below=float(rng.uniform(low, high)))
        game.restart(self.positions, lane)
        search.plant(self.trees, self.positions, lane)
        self._look_for_a_move(games[lane], lane)

    def _look_for_a_move(self, this: _Game, lane: int) -> None:
        """A slow move begins with an empty tree and noise, a fast one with what is known."""
        asked = self.config.search
        this.slow = this.rng.random() >= asked.fast_frequency
        room = self.nodes - int(self.trees.used[lane])
        if this.slow or room < asked.fast_readouts + asked.virtual_losses:
            search.plant(self.trees, self.positions, lane)
        readouts = asked.readouts if this.slow else asked.fast_readouts
        self.goals[lane] = self.trees.visits[lane, 0] + readouts
        self.noise_due[lane] = this.slow

    def _add_noise(self, this: _Game, lane: int) -> None:
        asked = self.config.search
        legal = int((self.trees.prior[lane, 0] >= 0.0).sum())
        noise = this.rng.dirichlet(np.full(legal, asked.noise_concentration))
        search.mix_noise(self.trees, lane, noise, asked.noise_share)
        self.noise_due[lane] = False

    def _move(self, this: _Game, lane: int) -> Record | None:
        """Make the move that was looked for; the record if the game is over with it."""
        asked, ply = self.config.search, int(self.positions.ply[lane])
        soft = asked.soft_exponent if ply < asked.soft_moves else None
        if this.slow:
            self._learn(this, lane, soft or 1.0)
        if search.root_value(self.trees, lane) < this.resign_below:
            return self._record(this, winner=-int(self.positions.to_play[lane]), margin=None)
        action = choose(self.trees.tries[lane, 0], soft, this.rng)
        game.play(self.positions, lane, action, self.geometry)
        this.moves.append(action)
        if game.is_over(int(self.positions.passes_in_a_row[lane]), ply + 1, self.points):
            margin = game.area(self.positions.recent[lane, 0], self.geometry) - self.manner.komi
            return self._record(this, winner=int(np.sign(margin)), margin=abs(margin))
        search.advance(self.trees, self.positions, lane, action)
        self._look_for_a_move(this, lane)
        return None

    def _learn(self, this: _Game, lane: int, exponent: float) -> None:
        planes = np.empty((game.PLANES, self.points), np.uint8)
        recent, to_play = self.positions.recent[lane], self.positions.to_play[lane]
        game.write_planes(planes, recent, to_play, self.geometry, self.geometry.symmetries[0])
        this.planes.append(np.packbits(planes))
        tries = search.pruned_tries(self.trees, lane)
        this.policies.append(softened(tries, exponent).astype(np.float16))

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
    """What the games of one generation are drawn from."""
    return derive(seed, "selfplay", generation)
