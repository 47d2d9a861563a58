"""Served quality is a share of the verified one, in the direction of the target."""

import math

import pytest

from train_bench.quality import Target, Threshold
from train_bench.serving.quality_rule import equal, share

HIGH = Target(thresholds=(Threshold(metric="top1", value=0.7),))
LOW = Target(thresholds=(Threshold(metric="WER", value=0.2, higher_is_better=False),))
BOTH = Target(thresholds=(*HIGH.thresholds, *LOW.thresholds))


@pytest.mark.parametrize(
    ("target", "served", "verified", "expected"),
    [
        (HIGH, {"top1": 0.792}, {"top1": 0.8}, 0.99),
        (HIGH, {"top1": 0.9}, {"top1": 0.8}, 1.125),
        (LOW, {"WER": 0.2}, {"WER": 0.1}, 0.5),
        (LOW, {"WER": 0.1}, {"WER": 0.2}, 2.0),
        (LOW, {"WER": 0.0}, {"WER": 0.0}, 1.0),
        (LOW, {"WER": 0.1}, {"WER": 0.0}, 0.0),
        (BOTH, {"top1": 0.8, "WER": 0.2}, {"top1": 0.8, "WER": 0.1}, 0.5),
        (HIGH, {}, {"top1": 0.8}, 0.0),
        (HIGH, {"top1": math.nan}, {"top1": 0.8}, 0.0),
        (HIGH, {"top1": None}, {"top1": 0.8}, 0.0),
    ],
)
def test_the_share_is_the_smallest_of_all_metrics(target, served, verified, expected):
    assert share(target, served, verified) == pytest.approx(expected)


def test_qualities_are_equal_within_the_tolerance_of_their_verification():
    assert equal({"top1": 0.800009}, {"top1": 0.8}, 1e-5)
    assert not equal({"top1": 0.80002}, {"top1": 0.8}, 1e-5)
    assert equal({"top1": 0.80002}, {"top1": 0.8}, 1e-4)
    assert not equal({}, {"top1": 0.8}, 1e-5)
    assert not equal({"top1": None}, {"top1": 0.8}, 1e-5)
