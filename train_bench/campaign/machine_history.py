"""Campaigns of a machine's store, for comparisons of campaigns that did not alternate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench.compare.design import History
from train_bench.errors import TrainBenchError
from train_bench.judge.entry import Judgement


def machine_history(path: Path) -> History:
    """History of the store at `path`. A store that is not there or cannot be read shows none."""

    def campaigns(judged: Judgement) -> Sequence[Sequence[float]]:
        if not path.is_file():
            return []
        try:
            from train_bench.store import history  # a Python may have been built without SQLite

            return history.campaigns_like(path, judged)
        except (ImportError, TrainBenchError):
            return []

    return campaigns
