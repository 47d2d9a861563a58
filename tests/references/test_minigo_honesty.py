"""The mini target cannot be met without learning."""

from __future__ import annotations

import math

import pytest
import torch

from references.minigo import data
from references.minigo.config import Config
from references.minigo.task import Task
from tests.references.configs import minigo
from tests.references.one_rank import OneRank
from train_bench.rules import ruleset

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


def test_a_network_that_stands_still_passes_by_luck_in_fewer_than_one_run_of_a_hundred(mini: Config) -> None:
    looks = mini.evaluation.until
    assert looks == 40
    assert passes_once(0.35, mini.match.games, looks) < 1e-8
    assert passes_once(0.5, mini.match.games, looks) < 0.01
    assert passes_once(0.75, mini.match.games, looks) > 0.9


@pytest.fixture(scope="module")
def untrained(mini: Config) -> Task:
    """A run before its first generation."""
    task = Task(mini)
    task.build(1, OneRank())
    task.open_data()
    return task


def test_an_untrained_network_loses_nearly_all_games_against_the_opponent(
    untrained: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    rate = untrained.evaluate().metrics["win_rate"]
    with capsys.disabled():
        print(f"\nan untrained network wins {rate:.3f} of its games, target {TARGET}")  # noqa: T201
    assert rate <= 0.2


def test_the_opponent_is_a_small_file_of_the_network_that_is_trained(mini: Config, untrained: Task) -> None:
    file = data.opponent_file(mini)
    assert file is not None and file.stat().st_size < 200_000
    assert untrained._opponent is not None
    for ours, theirs in zip(untrained._model.parameters(), untrained._opponent.parameters(), strict=True):
        assert ours.shape == theirs.shape
    assert not torch.equal(untrained._model.policy_out.weight, untrained._opponent.policy_out.weight)
