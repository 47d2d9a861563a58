"""Several profiles beside each other, without any training."""

import copy

import pytest

from tests.profile.test_verdict import profile, rank, step
from train_bench.errors import LogError
from train_bench.profile import several, stationarity
from train_bench.report.profile import profiles_in_sentences


def of_classes(name, threads=1, **seconds):
    """A profile whose operators are one for each class."""
    raw = rank()
    raw["threads"] = threads
    raw["operators"] = [
        {"name": f"aten::{kind}", "class": kind, "phase": "forward", "seconds": value, "calls": 1.0}
        for kind, value in seconds.items()
    ]
    return profile(raw, benchmark=name)


def test_few_types_of_operators_hold_most_of_the_time():
    made = of_classes("a", matrix=1.2, convolution=0.6, random=0.1, element=0.1)
    (row, *_) = several.side_by_side([made] * 3)["profiles"]
    assert [one["name"] for one in row["dominance"]][:2] == ["aten::matrix", "aten::convolution"]
    assert [one["cumulative"] for one in row["dominance"]][1:] == pytest.approx([0.9, 0.95, 1.0])
    assert row["types_held"] in (2, 3)  # 90 % is reached by two, as far as sums of floats are exact


def test_profiles_of_like_classes_join_first_whatever_their_length():
    told = several.side_by_side(
        [
            of_classes("words", matrix=1.8, element=0.2),
            of_classes("images", convolution=1.8, element=0.2),
            of_classes("more_words", matrix=0.9, element=0.11),
        ]
    )
    assert told["joins"][0]["of"] == ["words 1x1", "more_words 1x1"]
    assert told["joins"][0]["distance"] < 0.001 < 0.9 < told["joins"][1]["distance"]
    assert told["profiles"][2]["nearest"]["name"] == "words 1x1"
    assert told["order"][0] == "images 1x1" or told["order"][-1] == "images 1x1"
    assert "least similar to the others images 1x1" in told["answer"]["sentence"]


def test_profiles_of_the_same_benchmark_tell_what_more_threads_change():
    one, two = (of_classes("a", threads, matrix=1.0 / threads, element=0.5) for threads in (1, 2))
    told = several.side_by_side([one, two, of_classes("b", matrix=1.0)])
    (row,) = told["threads"]
    assert (row["benchmark"], row["threads"]) == ("a", [1, 2])
    times = {one["name"]: one["times"] for one in row["classes"]}
    assert times["matrix"] == pytest.approx(2.0)
    assert times["element"] == pytest.approx(1.0)
    assert any(
        line.startswith("threads     a, 1 rank(s), speedup of 2 over 1")
        for line in profiles_in_sentences(told)
    )


def test_threads_of_other_batches_are_not_compared():
    one, two = (of_classes("a", threads, matrix=1.0) for threads in (1, 2))
    two["global_batch_size"] *= 2
    assert several.side_by_side([one, two, of_classes("b", matrix=1.0)])["threads"] == []


def test_a_number_of_types_that_is_the_same_for_all_is_told_once():
    told = several.side_by_side([of_classes("a", matrix=1.0, element=1.0)] * 3)
    assert told["answer"]["sentence"].startswith("2 types of operators hold 90 %")


def test_one_type_is_told_in_the_singular():
    told = several.side_by_side([of_classes("a", matrix=1.0)] * 3)
    assert told["answer"]["sentence"].startswith("1 type of operators holds 90 %")
    assert "1 of 1 types of operators holds 90 %" in list(profiles_in_sentences(told))[1]


def test_a_profile_without_time_of_operators_is_refused_in_a_sentence():
    with pytest.raises(LogError, match="profile of b 1x1 has no operator times"):
        several.side_by_side([of_classes("a", matrix=1.0), of_classes("b"), of_classes("c", matrix=1.0)])


def rounds(inputs):
    return [{"steps": [step(0.0, input=value) for value in taken]} for taken in inputs]


def test_a_share_that_moves_in_every_round_changes():
    rows = stationarity.thirds(rounds([[1, 1, 1, 2, 3, 3], [1, 1, 1, 2, 4, 4], [1, 1, 1, 1, 3, 3]]))
    changed = {row["phase"]: row for row in rows if row["changes"]}
    assert changed["input"]["first"] == pytest.approx(1 / 8)
    assert changed["input"]["last"] == pytest.approx(3 / 10)
    assert {"input", "forward", "backward"} <= set(changed)


def test_a_share_that_moves_now_here_now_there_is_noise():
    rows = stationarity.thirds(rounds([[1, 1, 1, 2, 3, 3], [3, 3, 1, 2, 1, 1], [1, 1, 1, 1, 3, 3]]))
    assert not any(row["changes"] for row in rows)
    assert stationarity.thirds(rounds([[1, 2]])) == []


def test_a_profile_without_thirds_is_read_and_says_so():
    made = profile(rank())
    old = copy.deepcopy(made)
    del old["step"]["thirds"]
    lines = list(profiles_in_sentences(several.side_by_side([made, made, old])))
    assert "steps are stationary" in lines[1]
    assert "too few steps to test" in lines[3]
