"""Campaigns of this machine's store, for comparisons of campaigns that did not alternate."""

from __future__ import annotations

from collections.abc import Sequence

from train_bench.compare.design import History
from train_bench.errors import TrainBenchError
from train_bench.judge.entry import Judgement
from train_bench.plan import discover


def machine_history(store: str | None = None) -> History:
    """History of the store that a user names, by default that of the user's data folder. A store that is not there or
    cannot be read shows none."""
    path = discover.store(store)

    def campaigns(judged: Judgement) -> Sequence[Sequence[float]]:
        if not path.is_file():
            return []
        try:
            from train_bench.store import history  # a Python may have been built without SQLite

            return history.campaigns_like(path, judged)
        except (ImportError, TrainBenchError):
            return []

    return campaigns
