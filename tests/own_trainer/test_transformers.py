"""The Trainer of Transformers under the clock of train_bench."""

import pytest

from tests.own_trainer import trained

pytestmark = pytest.mark.full

BEGUN = ["init_stop", "run_start"]


@pytest.fixture(scope="module")
def moments():
    return trained.told("transformers_moments.py")


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_reaches_the_target_as_the_reference_does(tmp_path, ranks):
    trained.output("transformers_loop.py", str(tmp_path / "out"), "1", ranks=ranks)
    assert trained.accuracies(tmp_path / "out")[-1] >= 0.73


@pytest.mark.parametrize(
    ("case", "evaluated"),
    [
        ("whole batches", [8, 12, 24]),
        ("parts of batches", [8, 10, 24]),
        ("accumulated", [8, 16, 24]),
        ("short last step", [8, 16, 24]),
        ("own interval", [8, 12, 24]),
        ("every epoch", [8, 12, 24]),
        ("on start", [8, 12, 24]),
    ],
)
def test_it_evaluates_with_the_step_that_completes_what_is_due(moments, case, evaluated):
    """Ten samples in batches of 4; due at 7, 10 and 23. Two batches or three to a step where steps accumulate."""
    assert moments[case]["evaluated"] == evaluated
    assert moments[case]["before"] == BEGUN, "the clock runs when the first sample is read"


def test_it_stops_where_the_run_is_decided(moments):
    assert moments["whole batches"]["steps"] == 6


@pytest.mark.parametrize(
    ("case", "sentence", "read"),
    [
        ("other name", "no eval_accuracy", True),
        ("resumed", "begins at step 3 of a checkpoint", False),
        ("too short", "ended before the run was decided", True),
    ],
)
def test_what_cannot_be_timed_is_refused_in_a_sentence(moments, case, sentence, read):
    assert sentence in moments[case]["refused"]
    assert moments[case]["read"] == read
