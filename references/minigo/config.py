"""Configuration of the reinforcement learning benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from train_bench import task

STARTS = ("checkpoint", "random", "undecided")


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "reinforcement learning").

    train_batch_size                   `global_batch_size` by its older name; `Config.for_ranks` fills it in
    lr_boundaries                      steps, counted on from those of the start weights: the last of each rate
    lr_rates                           one more than there are boundaries
    min_selfplay_games_per_generation  games before each training
    """

    train_batch_size: int | None = None
    lr_boundaries: list[int]
    lr_rates: list[float]
    min_selfplay_games_per_generation: int


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network.

    board_size     points a side
    channels       of the trunk
    blocks         residual blocks of two convolutions
    value_width    inner width of the value head
    channels_last  memory layout; None: the faster one; changes no number beyond rounding
    """

    board_size: int = 19
    channels: int = 64
    blocks: int = 6
    value_width: int = 64
    channels_last: bool | None = None


@dataclass(slots=True, kw_only=True)
class Data:
    """Training window: the positions sampled from the games.

    window_size     most recent generations whose positions are learnt from
    train_filter    share of these positions that a generation draws
    permute_labels  give every position the targets of another one: nothing can be learnt
    """

    window_size: int = 5
    train_filter: float = 0.3
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Search:
    """Tree search of self-play.

    komi                 points that White gets
    readouts             visits that a slow move adds to those of the tree that was kept, which are repeated
    fast_readouts        visits that a fast move adds to the tree
    fast_frequency       probability that a move is fast: no noise, tree reused, no target of training
    virtual_losses       leaves per tree and batch
    value_init_penalty   by how much an untried move is worse than its position
    noise_share          of the Dirichlet noise in a slow move's priors
    noise_concentration  of the Dirichlet distribution
    soft_moves           moves of a game that are drawn from the visit counts of points; later ones are the most
                         visited
    soft_exponent        of the visit counts, there and in the targets of these moves
    resign_between       the threshold of a game is drawn from here; a side whose root's value is below it resigns
    pass_alive_after     times that the other side has to pass in its moves, one after another, before a side no longer
                         moves into pass-alive regions
    passes_from          moves of a game before which nobody passes who can move otherwise; networks that know
                         nothing would end their games before there is anything to learn from
    games_at_once        games of a rank that share the network's batches
    """

    komi: float = 7.5
    readouts: int = 800
    fast_readouts: int = 80
    fast_frequency: float = 0.75
    virtual_losses: int = 4
    value_init_penalty: float = 0.2
    noise_share: float = 0.3
    noise_concentration: float = 0.03
    soft_moves: int = 30
    soft_exponent: float = 0.98
    resign_between: list[float]
    pass_alive_after: int = 4
    passes_from: int = 0
    games_at_once: int = 128


@dataclass(slots=True, kw_only=True)
class Match:
    """The games against the target model: no resignation, no fast moves, no noise, and always the most visited move.

    games          half of them with each colour
    readouts       visits that a move adds to the tree that its side has kept
    opening_moves  at the beginning of a game are drawn among the legal points: the same ones in every match, and in
                   two games each, of which the model has Black in one and White in the other
    """

    games: int = 256
    readouts: int = 100
    opening_moves: int = 0


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The reinforcement learning benchmark at any scale.

    momentum, l2   of the optimizer; the loss has l2 / 2 times the squares of all weights but biases
    starts_from      "checkpoint" (of `start_weights`), "random", or "undecided": random but for both output layers,
                     which are 0, so that all moves are alike to the network and no side is ahead
    start_weights    file of the bootstrap checkpoint, in the format of `weights.py`
    opponent         file of the target model, likewise; without a folder it is one of this reference's own; or
                     "untrained", a network of random weights
    opponent_sha256  digest that the opponent's file must have; None: not checked
    warm_up_steps    are taken on synthetic batches before the clock and then undone
    keep_folder      where each generation's weights and first `kept_games` games are written; None: nowhere
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    search: Search
    match: Match
    momentum: float = 0.9
    l2: float = 0.0001
    starts_from: str = "checkpoint"
    start_weights: str | None = None
    opponent: str | None = None
    opponent_sha256: str | None = None
    warm_up_steps: int = 2
    keep_folder: str | None = None
    kept_games: int = 4

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *(option for option in task.BenchmarkConfig.TUNABLE if option != "hyperparameters"),
        *("hyperparameters.global_batch_size", "hyperparameters.gradient_accumulation_steps"),
        *("hyperparameters.lr_boundaries", "hyperparameters.lr_rates", "model.channels_last"),
        *("start_weights", "opponent", "search.games_at_once", "warm_up_steps", "keep_folder", "kept_games"),
    )

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "numba")

    def for_ranks(self, ranks: int) -> Config:
        """With `train_batch_size` as it will be."""
        hyperparameters = self.hyperparameters
        return replace(
            self, hyperparameters=replace(hyperparameters, train_batch_size=hyperparameters.global_batch_size)
        )

    def refuse(self) -> str | None:
        """A run from the published checkpoint needs the file of it and no other may have one, and every run needs
        an opponent."""
        if self.starts_from not in STARTS:
            return f"benchmark.starts_from is {self.starts_from!r}; it may be {', '.join(STARTS)}."
        if self.starts_from != "checkpoint" and self.start_weights is not None:
            return (
                f"{self.benchmark} starts from weights that are {self.starts_from} and not from "
                f"{self.start_weights}; leave benchmark.start_weights out."
            )
        missing = []
        if self.starts_from == "checkpoint" and self.start_weights is None:
            missing.append("benchmark.start_weights (the bootstrap checkpoint)")
        if self.opponent is None:
            missing.append("benchmark.opponent (the target model)")
        if not missing:
            return None
        return (
            f"{self.benchmark} starts from weights that its authors published and plays against their target "
            f"model; not set: {' and '.join(missing)}. references/minigo/README.md says how to convert them."
        )
