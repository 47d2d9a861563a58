"""Numbers that a sentence compares: as many digits as tell them apart, and no more."""

import pytest

from train_bench.core.digits import distinct, significant


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((7.3, 8.1), ("7.30", "8.10")),
        ((7.3249, 7.3201), ("7.325", "7.320")),
        ((36.0, 35.99994), ("36.0000", "35.9999")),
        ((5.0, 5.0), ("5.00", "5.00")),
        ((1e-20, 0.0), ("1e-20", "0.0")),
    ],
)
def test_decimals_tell_different_numbers_apart(values, shown):
    assert distinct(*values) == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.993, 1.0), ("0.993", "1")),
        ((0.99996, 1.0), ("0.99996", "1")),
        ((13.2712, 13.2714), ("13.2712", "13.2714")),
        ((1.0, 1.0), ("1", "1")),
    ],
)
def test_significant_digits_do_as_well(values, shown):
    assert significant(*values, digits=3) == shown
