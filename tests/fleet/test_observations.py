"""What is kept of what was seen of a node."""

from train_bench.fleet.observations import hashable


def test_what_was_found_equals_itself_whatever_it_is():
    found = hashable({"b": [1.0, float("nan")], "a": {"c": None}})
    assert (
        found
        == (("a", (("c", None),)), ("b", (1.0, "nan")))
        == hashable({"a": {"c": None}, "b": [1.0, float("nan")]})
    )
    assert hash(found)
