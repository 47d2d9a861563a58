"""The state of a result."""

import pytest

from train_bench.judge.state import state_of

MISSING = "Incomplete: 1 of 5 runs."


@pytest.mark.parametrize(
    ("valid", "reasons", "state"),
    [
        (True, [], "valid"),
        (None, ["this log follows the rules; 1 of 5 runs, no score"], "no result"),
        (False, [MISSING], "incomplete"),
        (False, [MISSING, "Changed definition of the benchmark: lr=2."], "not valid"),
        (False, ["Changed definition of the benchmark: lr=2."], "not valid"),
        (False, [], "not valid"),
        (False, [7], "not valid"),
    ],
)
def test_a_result_is_incomplete_if_nothing_but_runs_is_missing(valid, reasons, state):
    assert state_of(valid, reasons) == state
