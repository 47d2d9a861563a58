"""Environment variables for as long as a context lasts."""

import os

import pytest

from train_bench.core.variables import variable


@pytest.mark.parametrize("before", [None, "earlier"])
def test_a_variable_is_what_it_was_after_a_context_that_failed(before, monkeypatch):
    monkeypatch.delenv("TRAIN_BENCH_EXAMPLE", raising=False)
    if before is not None:
        monkeypatch.setenv("TRAIN_BENCH_EXAMPLE", before)
    with pytest.raises(ValueError), variable("TRAIN_BENCH_EXAMPLE", "now"):
        assert os.environ["TRAIN_BENCH_EXAMPLE"] == "now"
        raise ValueError
    assert os.environ.get("TRAIN_BENCH_EXAMPLE") == before
