"""A list of the state of a rule file answers `in` as a list does, in constant time."""

import random

import pytest

from train_bench.rules.checks import IndexedList

VALUES = [
    0,
    1,
    1.0,
    True,
    None,
    "1",
    "a",
    [1],
    [1.0],
    [[1]],
    {"a": 1},
    {"a": [1]},
    {"a": 1, "b": None},
    [],
    {},
]


@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_a_list_does(seed):
    draws = random.Random(seed)
    plain, indexed = [], IndexedList()
    for _ in range(100):
        item = draws.choice(VALUES)
        assert (item in indexed) == (item in plain)
        for each in (plain, indexed):
            each.append(item)
        if draws.random() < 0.1:
            assert plain.pop() == indexed.pop()


def test_many_items_take_no_more_comparisons():
    """Of items that count how often they are compared, none is."""

    class Counted(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Counted.compared += 1
            return str.__eq__(self, other)

    items = IndexedList()
    for number in range(1000):
        assert Counted(number) not in items
        items.append(Counted(number))
    assert Counted.compared < 1000
