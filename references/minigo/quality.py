"""How strong a model is: the share of its games that it wins against the target model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from references.minigo import game, search
from references.minigo.config import Config
from references.minigo.selfplay import Infer, choose, generator_of, manner_of, salt_of


class Match:
    """Games between a model and its opponent. The model has Black in those with an even number."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.geometry = game.geometry(config.model.board_size)
        self.manner = manner_of(config)

    def play(self, model: Infer, opponent: Infer, numbers: Sequence[int], seed: int) -> int:
        """Play the games of these numbers all at once, and return how many the model wins. A game that nobody
        wins is not won. Every move is looked for in a new tree; the numbers of visits decide as in self-play."""
        config, points = self.config, self.config.model.board_size**2
        readouts, losses = config.match.readouts, config.search.virtual_losses
        count = len(numbers)
        positions = game.new_games(count, config.model.board_size)
        trees = search.new_trees(count, readouts + losses + 1, points)
        rngs = [generator_of(seed, number) for number in numbers]
        salts = np.array([salt_of(rng) for rng in rngs], np.uint64)
        goals = np.full(count, readouts, np.int32)
        planes = np.empty((count * losses, game.PLANES, points), np.uint8)
        leaves = np.empty((count * losses, 3), np.int32)
        colours = np.array([game.WHITE if number % 2 else game.BLACK for number in numbers], np.int8)
        running = np.ones(count, np.bool_)
        won = 0
        for place in range(count):
            search.plant(trees, positions, place)
        while running.any():
            models_turn = positions.to_play == colours
            for infer, turn in ((model, models_turn), (opponent, ~models_turn)):
                mine = np.flatnonzero(running & turn).astype(np.int32)
                found = search.select(
                    trees, positions, mine, goals, salts, self.manner, self.geometry, planes, leaves
                )
                if found:
                    policies, values = infer(planes[:found])
                    search.incorporate(trees, leaves[:found], policies, values, self.manner, self.geometry)
            for place in np.flatnonzero(running & (trees.visits[:, 0] >= goals)).tolist():
                ply = int(positions.ply[place])
                soft = config.search.soft_exponent if ply < config.match.soft_moves else None
                action = choose(trees.tries[place, 0], soft, rngs[place])
                game.play(positions, place, action, self.geometry)
                search.plant(trees, positions, place)
                if game.is_over(int(positions.passes_in_a_row[place]), ply + 1, points):
                    running[place] = False
                    board = positions.recent[place, 0]
                    won += game.winner(board, self.manner.komi, self.geometry) == colours[place]
        return won
