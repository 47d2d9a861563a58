"""Bounds of a compliance test that is compared by its cost are for review; of every other test they hold."""

import shutil

import pytest

from train_bench.serving.judge import judge_folder


@pytest.mark.parametrize(
    ("name", "rules", "grade"),
    [
        ("TEST01", "mini-serving-1.0", "review"),
        ("TEST01", "inference-6.1", "breaks"),
        ("performance", "mini-serving-1.0", "breaks"),
    ],
)
def test_the_bound_of_a_compliance_test_is_for_review_where_costs_are_compared(copied, name, rules, grade):
    folder = copied / "resnet_mini" / "Server" / name
    shutil.copytree(copied / "too_slow", folder)
    tests = judge_folder(copied / "resnet_mini", rules).tests
    (found,) = (finding for finding in tests[0].findings if finding.check == "latency_bound")
    assert found.grade == grade
