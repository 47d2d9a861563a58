"""Numbers that a sentence compares: as many digits as tell them apart, and no more."""

from functools import partial

import pytest

from train_bench.core.digits import decimals_apart, distinct, minutes_in_digits, significant

three_significant = partial(significant, digits=3)


@pytest.mark.parametrize(
    ("write", "values", "shown"),
    [
        (distinct, (7.3, 8.1), ("7.30", "8.10")),
        (distinct, (7.3249, 7.3201), ("7.325", "7.320")),
        (distinct, (36.0, 35.99994), ("36.0000", "35.9999")),
        (distinct, (5.0, 5.0), ("5.00", "5.00")),
        (distinct, (1e-20, 0.0), ("1e-20", "0.0")),
        (three_significant, (0.993, 1.0), ("0.993", "1")),
        (three_significant, (0.99996, 1.0), ("0.99996", "1")),
        (three_significant, (13.2712, 13.2714), ("13.2712", "13.2714")),
        (three_significant, (1.0, 1.0), ("1", "1")),
    ],
)
def test_different_numbers_look_different(write, values, shown):
    assert write(*values) == shown


@pytest.mark.parametrize(
    ("values", "decimals", "shown"),
    [
        ((7.3, 8.1), 4, 4),
        ((1.00004, 1.0), 4, 5),
        ((0.75899, 0.759), 4, 5),
        ((None, 2.0), 3, 3),
        ((1.0, 1.0), 2, 2),
    ],
)
def test_decimals_of_a_column_tell_its_numbers_apart(values, decimals, shown):
    assert decimals_apart(*values, decimals=decimals) == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [((0.25312,), "0.2531"), ((0.0,), "0.0000"), ((0.00085,), "0.000850"), ((1 / 3, 0.00085), "0.333333")],
)
def test_minutes_of_short_runs_have_three_digits(values, shown):
    value, *smallest = values
    assert minutes_in_digits(value, **({"smallest": smallest[0]} if smallest else {})) == shown
