"""The rules of mini-serving-1.0 with a twentieth of the time and one run of weights."""

from dataclasses import replace

from train_bench.serving import rounds

QUALITY = 899 / 900
SHORT = {"min_duration_ms": 100, "weights": 1}


def patch(monkeypatch, **changes):
    """Let `rounds.load` give them."""
    every = dict(rounds.rounds())
    every[rounds.MINI_ROUND] = replace(every[rounds.MINI_ROUND], **(SHORT | changes))
    monkeypatch.setattr(rounds, "rounds", lambda: every)
