"""Events of a log are found by key and by place, in the order of the log."""

import pytest

from train_bench.core.event import Event, Events

KEYS = ["a", "b", "a", *"c" * 40, "b", "d"]
LISTED = [Event(key, at, 10 * at, "P", {"at": at}, at + 1) for at, key in enumerate(KEYS)]


def test_events_are_a_sequence():
    events = Events(LISTED)
    assert list(events) == LISTED == events[:]
    assert events[-1] == LISTED[-1]
    assert list(reversed(events)) == LISTED[::-1]
    assert events == LISTED != events[1:]
    assert events != 5
    with pytest.raises(IndexError):
        events[len(LISTED)]


@pytest.mark.parametrize("keys", [(), ("a",), ("a", "b"), ("b", "a", "b"), ("c", "a"), ("z",), ("z", "d")])
@pytest.mark.parametrize("since", [0, 2, 1000])
def test_events_of_some_keys_are_in_the_order_of_the_log(keys, since):
    assert list(Events(LISTED).of(*keys, since=since)) == [one for one in LISTED[since:] if one.key in keys]


def test_events_that_are_added_later_are_found():
    events = Events(LISTED[:2])
    assert events.count("a") == 1
    for one in LISTED[2:]:
        events.add(*one)
    assert events.count("a") == 2
    assert list(events.keys) == ["a", "b", "c", "d"]
    assert (events.first("a"), events.last("a"), events.first("z")) == (LISTED[0], LISTED[2], None)
    assert events.first_of_each()["b"] == LISTED[1]


def test_values_that_are_kept_as_text_are_read_when_they_are_asked_for():
    events = Events()
    events.add("a", b'{"x": [1, NaN]}', 1, "P", b'{"y": null}', 1)
    assert events[0].metadata == {"y": None}
    assert str(events[0].value) == "{'x': [1, nan]}"


def test_other_values_of_a_key_leave_the_events_as_they_were():
    events = Events(LISTED)
    assert [one.value for one in events.with_value("a", "other").of("a", "d")] == [
        "other",
        "other",
        len(KEYS) - 1,
    ]
    assert list(events) == LISTED
