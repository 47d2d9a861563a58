"""The mini target cannot be met without learning."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.references.configs import minigo
from tests.references.one_rank import OneRank
from train_bench.references.minigo import data
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.quality import Match
from train_bench.references.minigo.selfplay import Infer
from train_bench.references.minigo.task import Task
from train_bench.rules import ruleset

pytestmark = pytest.mark.usefixtures("engine")

TARGET = ruleset.load("mini-1.0").benchmark("minigo_mini").target.thresholds[0].value


@pytest.fixture(scope="module")
def mini() -> Config:
    return minigo("minigo_mini", "warm_up_steps=0")


def passes_once(rate: float, games: int, looks: int) -> float:
    """The probability that a network which wins a game with probability `rate` meets the target in a look."""
    needed = math.ceil(TARGET * games)
    one = sum(
        math.comb(games, won) * rate**won * (1 - rate) ** (games - won) for won in range(needed, games + 1)
    )
    return 1 - (1 - one) ** looks


@pytest.mark.full
def test_a_network_that_stands_still_at_a_quarter_passes_by_luck_in_fewer_than_one_run_of_a_thousand(
    mini: Config,
) -> None:
    looks = mini.evaluation.until
    assert passes_once(0.25, mini.match.games, looks) < 0.001
    assert passes_once(0.6, mini.match.games, looks) > 0.99


@pytest.fixture(scope="module")
def untrained(mini: Config) -> Task:
    """A run before its first generation."""
    task = Task(mini)
    task.build(1, OneRank())
    task.open_data()
    return task


def nothing_known(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All moves alike, no side ahead."""
    return np.full((len(planes), 26), 1 / 26, np.float32), np.zeros(len(planes), np.float32)


def at_random() -> Infer:
    """A move at random is certain at every position."""
    rng = np.random.default_rng(1)

    def infer(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sure = np.eye(26, dtype=np.float32)[rng.integers(25, size=len(planes))]
        return sure, np.zeros(len(planes), np.float32)

    return infer


def without_value(network: Infer) -> Infer:
    """The network's moves, but no side is ahead."""

    def infer(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        policies, values = network(planes)
        return policies, np.zeros_like(values)

    return infer


@pytest.mark.full
def test_bad_players_lose_nearly_all_games_against_the_opponent(
    mini: Config, untrained: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    assert untrained._opponent is not None
    opponent = untrained._infer(untrained._opponent)
    bounds = {
        "an untrained network": (untrained._infer(untrained.model), 0.1),
        "a search that knows nothing": (nothing_known, 0.1),
        "a player of random moves": (at_random(), 0.1),
        "the opponent without its value": (without_value(opponent), 0.4),
    }
    for player, (infer, bound) in bounds.items():
        rate = Match(mini).play(infer, opponent, range(mini.match.games), seed=1) / mini.match.games
        with capsys.disabled():
            print(f"\n{player} wins {rate:.3f} of its games, target {TARGET}")  # noqa: T201
        assert rate <= bound, player


def test_the_opponent_is_a_small_file_of_the_network_that_is_trained(mini: Config, untrained: Task) -> None:
    file = data.opponent_file(mini)
    assert file is not None and file.stat().st_size < 200_000
    assert untrained._opponent is not None
    for ours, theirs in zip(untrained.model.parameters(), untrained._opponent.parameters(), strict=True):
        assert ours.shape == theirs.shape
    assert not torch.equal(untrained.model.policy_out.weight, untrained._opponent.policy_out.weight)
