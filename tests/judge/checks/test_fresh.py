"""Runs that continue from a checkpoint are asked for; runs that differ as seeds do are not."""

from types import SimpleNamespace

import pytest

from train_bench.judge.checks import ENTRY_CHECKS
from train_bench.judge.checks.fresh import FOLD, check_fresh
from train_bench.logs.record import SUCCESS
from train_bench.progress import Unit


def found(*runs):
    """Findings on runs, each the position at the target and the number of evaluations."""
    records = [
        SimpleNamespace(
            file=f"result_{index}.txt",
            status=SUCCESS,
            convergence=position,
            started_ms=1000 * index,
            evaluations=(None,) * evaluations,
        )
        for index, (position, evaluations) in enumerate(runs)
    ]
    case = SimpleNamespace(records=records, folder="campaign", rules=SimpleNamespace(unit=Unit.EPOCH))
    return list(check_fresh(case))


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (
            [(13, 13), (1, 1), (1, 1), (1, 1), (1, 1)],
            "result_1.txt reaches the target at epoch 1, result_0.txt at 13, 13 times",
        ),
        ([(FOLD, 6), (1, 3)], "6 times as many"),
        ([(9, 9), (9, 9), (1, 1), (9, 9)], "9 times as many"),
        (
            [(5, 5), (1, 1), (1, 1), (2, 2)],
            "in its evaluation 5, and 2 of 3 later ones in their first",
        ),
    ],
)
def test_runs_that_may_continue_an_earlier_one_are_for_review(runs, sentence):
    (one,) = found(*runs)
    assert (one.check, one.grade) == ("fresh", "review")
    assert sentence in one.message
    assert "new weights" in one.message


@pytest.mark.parametrize(
    "runs",
    [
        [(FOLD - 0.01, 5), (1, 3)],
        [(3, 3), (1, 1), (1, 1)],
        [(1, 1), (5, 5), (1, 1)],
        [(4, 4), (1, 1), (2, 2)],
        [(1289, 8), (4889, 60)],
        [(7, 7)],
        [],
    ],
)
def test_runs_that_differ_as_seeds_do_are_not(runs):
    assert found(*runs) == []


def test_entries_are_asked():
    assert check_fresh in ENTRY_CHECKS
