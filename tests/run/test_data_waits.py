"""Waits for data of all ranks in the log."""

from __future__ import annotations

import pytest

from tests.references.one_rank import OneRank
from train_bench.run import data_waits


@pytest.mark.parametrize(("others", "logged"), [([0.25], [1500, 250]), ([None], None), (None, None)], ids=str)
def test_rank_0_logs_the_waits_of_all_if_all_know_them(others, logged) -> None:
    class Ranks(OneRank):
        def gather_objects(self, value):
            return None if others is None else [value, *others]

    found = data_waits.gather(Ranks(), 1.5)
    assert found == (None if logged is None else {"milliseconds": logged})
