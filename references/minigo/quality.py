"""Win rate of a model against the target model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from train_bench.references.minigo import game, scoring, search, trees
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.selfplay import Infer, generator_of, manner_of, salt_of
from train_bench.seeds import derive


class _Player:
    """One side of all games: a network, and one tree per game kept from its first move on."""

    def __init__(self, config: Config, infer: Infer, positions: game.Positions, salts: np.ndarray) -> None:
        losses, (count, _, points) = config.search.virtual_losses, positions.recent.shape
        self.infer, self.salts = infer, salts
        self.geometry, self.manner = game.geometry(config.model.board_size), manner_of(config)
        self.readouts, self.losses = config.match.readouts, losses
        self.trees = trees.new_trees(count, 2 * self.readouts, points)
        self.goals = np.zeros(count, np.int32)
        self.planes = np.empty((count * losses, game.PLANES, points), np.uint8)
        self.leaves = np.empty((count * losses, 3), np.int32)
        for place in range(count):
            trees.plant(self.trees, positions, place)
            self.look_for_a_move(place)

    def look_for_a_move(self, place: int) -> None:
        """Request that many more visits of this game's tree."""
        self.goals[place] = self.trees.visits[place, 0] + self.readouts
        room = int(self.trees.used[place]) + self.readouts + self.losses
        self.trees = trees.with_room(self.trees, room)

    def think(self, positions: game.Positions, games: np.ndarray) -> np.ndarray:
        """Take one batch of leaves of these games' trees through the network; which of them have their visits."""
        count = search.select(
            *(self.trees, positions, games, self.goals, self.salts),
            *(self.manner, self.geometry, self.planes, self.leaves),
        )
        if count:
            policies, values = self.infer(self.planes[:count])
            search.incorporate(self.trees, self.leaves[:count], policies, values, self.manner, self.geometry)
        return games[self.trees.visits[games, 0] >= self.goals[games]]


class Match:
    """Games between a model and its opponent. The model has Black in those with an even number."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.geometry = game.geometry(config.model.board_size)

    def play(self, model: Infer, opponent: Infer, numbers: Sequence[int], seed: int) -> int:
        """Play the games of these numbers in parallel and return how many the model wins. A game that nobody wins is
        not won. After the opening each side plays its most visited move outside pass-alive regions; once the whole
        board is pass-alive the game is counted."""
        count, size, komi = len(numbers), self.config.model.board_size, self.config.search.komi
        positions = game.new_games(count, size)
        game.random_playouts(positions, self.geometry, self._openings(numbers))
        rngs = [generator_of(seed, number) for number in numbers]
        mine, other = (
            _Player(self.config, infer, positions, np.array([salt_of(rng) for rng in rngs], np.uint64))
            for infer in (model, opponent)
        )
        colours = np.array([game.WHITE if number % 2 else game.BLACK for number in numbers], np.int8)
        running = np.ones(count, np.bool_)
        won = 0
        while running.any():
            models_turn = positions.to_play == colours
            for player, waiting, turn in ((mine, other, models_turn), (other, mine, ~models_turn)):
                games = np.flatnonzero(running & turn).astype(np.int32)
                for place in player.think(positions, games).tolist():
                    action = int(search.most_visited(player.trees, place, self.geometry, True))
                    positions = game.with_room(positions)
                    game.play(positions, place, action, self.geometry)
                    for one in (player, waiting):
                        trees.advance(one.trees, positions, place, action)
                    waiting.look_for_a_move(place)
                    board = positions.recent[place, 0]
                    over = game.is_over(int(positions.passes_in_a_row[place]))
                    if over or scoring.is_settled(board, self.geometry):
                        running[place] = False
                        won += int(scoring.winner(board, komi, self.geometry) == colours[place])
        return won

    def _openings(self, numbers: Sequence[int]) -> np.ndarray:
        """Uniform draws, float64 (games, moves): those of games 2k and 2k + 1 are the same, whatever the seed."""
        seed, moves = derive(0, "openings"), self.config.match.opening_moves
        draws = [generator_of(seed, number // 2).random(moves) for number in numbers]
        return np.array(draws).reshape(len(numbers), moves)
