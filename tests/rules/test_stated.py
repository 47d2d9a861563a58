"""What a benchmark's folder states of itself: every word means what it says, and what is no word is refused."""

import copy
import math
from dataclasses import replace

import pytest
import yaml

from train_bench.core.event import Event
from train_bench.errors import RequestError
from train_bench.rules import generated, rulefile, ruleset, stated
from train_bench.rules.bounds import WORDS
from train_bench.rules.checks import check

EVERY_LOG = (ruleset.ROUNDS / "mini-1.0" / "every_log.yaml").read_text()

GOOD = {
    "round": "mini-1.0",
    "benchmarks": {
        "x_mini": {
            "runs": 5,
            "unit": "epoch",
            "target": {"top1": {"at_least": 0.5}},
            "schedule": {"name": "every", "first": [1], "period": 1},
        }
    },
    "hyperparameters": {"rate": {"above": 0}},
}

MEANINGS = [
    ({"above": 0}, [1e-9, 2], [0, -1, "a", None, [1], math.nan]),
    ({"at_least": 0}, [0, 2.5], [-1e-9, {}]),
    ({"below": 1}, [-5, 0.999], [1]),
    ({"at_most": 1}, [1, -5], [1.001]),
    ({"at_least": 0, "below": 1}, [0, 0.5], [1, -0.1]),
    ({"above": 0, "at_most": 1}, [1, 0.1], [0, 1.1]),
    ({"at_least": 3, "at_most": 3}, [3, 3.0], [2, 4]),
    ({"integer": True}, [-1, 0, 8.0], [0.5, "1", None, math.inf]),
    ({"integer": True, "at_least": 1}, [1, 2], [0, 1.5]),
    ({"multiple_of": 0.001}, [0.001, 2, 0], [0.0015]),
    ({"power_of_two_times": 0.0001}, [0.0001, 0.0008, 0.00005], [0.0003, 0, -0.0001]),
    ({"exactly": 2}, [2, 2.0], [3, "2", None]),
    ({"exactly": "sgd"}, ["sgd"], ["lars", 0]),
    ({"exactly": True}, [True], [False, "True"]),
    ({"exactly": [20, 20]}, [[20, 20]], [[20], 20]),
    ({"exactly": 'it\'s "$x" \\ {0}'}, ['it\'s "$x" \\ {0}'], ["x"]),
    ({"one_of": [1, math.inf]}, [1, math.inf], [2, -math.inf]),
    ({"one_of": ["a", -math.inf]}, ["a", -math.inf], [math.inf, "b"]),
    ({"each": {"above": 0}}, [[1, 2], []], [[0], [1, -1], 3, ["a"]]),
    ({"each": {"integer": True}}, [[1, 2.0]], [[1.5]]),
    ({"each": {"one_of": [1, 2]}}, [[1, 2, 1]], [[3]]),
    ({"length": 2}, [[1, 2]], [[1], 2]),
    (
        {"length": 2, "each": {"at_least": 1}, "ascending": True},
        [[1, 2], [2, 2]],
        [[2, 1], [0, 1], [1, 2, 3]],
    ),
]


def text_of(document, tmp_path, name="x_mini"):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document))
    stated.read.cache_clear()
    where = f"{tmp_path / 'rules.yaml'}: hyperparameters"
    return generated.text(stated.benchmark(tmp_path, name), EVERY_LOG, 30, where)


def broken(text, *lines):
    """Keys whose checks the lines break."""
    file = rulefile.parse(text, ruleset.ROUNDS)
    rules = replace(ruleset.load("mini-1.0").benchmark("ssd_mini"), files=lambda name: file)
    events = [Event(key=key, value=value, time_ms=0) for key, value in lines]
    return {failure.key for failure in check(rules, events) if failure.kind == "check"}


@pytest.mark.parametrize(("bounds", "good", "bad"), MEANINGS, ids=lambda item: str(item)[:40])
def test_a_word_means_what_it_says(bounds, good, bad, tmp_path):
    text = text_of(GOOD | {"hyperparameters": {"rate": bounds}}, tmp_path)
    for value in good:
        assert not broken(text, ("rate", value)), value
    for value in bad:
        assert broken(text, ("rate", value)) == {"rate"}, value


def test_every_word_is_tried_above():
    assert {word for bounds, _, _ in MEANINGS for word in bounds} == WORDS


CHOICE = {
    "name": {"one_of": ["sgd", "lars"]},
    "sgd_rate": {"when": {"name": "sgd"}, "above": 0},
    "lars_rate": {"when": {"name": "lars"}, "above": 1},
}


def test_an_alternative_is_demanded_with_its_choice_and_refused_with_another(tmp_path):
    text = text_of(GOOD | {"hyperparameters": CHOICE}, tmp_path)
    assert not broken(text, ("name", "sgd"), ("sgd_rate", 1), ("sgd_rate", 1))
    assert broken(text, ("name", "sgd"), ("sgd_rate", 1), ("sgd_rate", 2)) == {"sgd_rate"}
    assert broken(text, ("name", "sgd"), ("lars_rate", 2)) == {"lars_rate"}
    assert broken(text, ("name", "lars"), ("lars_rate", 1)) == {"lars_rate"}
    keys = rulefile.parse(text, tmp_path).keys
    assert keys["sgd_rate"].requirement == "AT_LEAST_ONE_OR(lars_rate)"
    assert keys["lars_rate"].requirement == "AT_LEAST_ONE_OR(sgd_rate)"


def test_a_key_may_be_logged_more_than_once(tmp_path):
    text = text_of(
        GOOD | {"hyperparameters": {"games": {"at_least": 2, "logged": "at_least_once"}}}, tmp_path
    )
    assert rulefile.parse(text, tmp_path).keys["games"].requirement == "AT_LEAST_ONE"


def test_what_is_stated_of_one_benchmark_holds_for_it_alone(tmp_path):
    document = copy.deepcopy(GOOD)
    for name, size in (("x_mini", 64), ("x_photos", 256)):
        own = {"hyperparameters": {"size": {"exactly": size}}}
        document["benchmarks"][name] = GOOD["benchmarks"]["x_mini"] | own
    assert broken(text_of(document, tmp_path), ("rate", 0), ("size", 256)) == {"rate", "size"}
    assert broken(text_of(document, tmp_path, "x_photos"), ("rate", 0), ("size", 256)) == {"rate"}


BEST = [
    ({"at_least": 24, "best": 100}, [24, 100], [23.9, 101]),
    ({"at_least": 0.5}, [0.5, 1], [0.4, 1.1]),
    ({"at_most": 0.2}, [0.2, 0], [0.3, -0.1]),
    ({"at_most": 7, "best": 1}, [7, 1], [7.1, 0.9]),
]


@pytest.mark.parametrize(("bound", "reached", "missed"), BEST)
def test_a_target_is_reached_from_its_bound_to_the_best_value(bound, reached, missed, tmp_path):
    document = copy.deepcopy(GOOD)
    document["benchmarks"]["x_mini"]["target"] = {"quality": bound}
    once = rulefile.parse(text_of(document, tmp_path), tmp_path).keys["eval_accuracy"].at_least_one
    assert [eval(once.code, {"v": {"value": value}}) for value in reached] == [True] * len(reached)
    assert [eval(once.code, {"v": {"value": value}}) for value in missed] == [False] * len(missed)


NOT_ALLOWED = {
    "an unknown word": ({"abov": 0}, r"rate is .*abov.*; allowed: .*above"),
    "no word": ({}, "rate is '{}'"),
    "code": ("v['value'] > 0", "words with their values"),
    "a bound that is text": ({"above": "0"}, r"rate\.above is '0'; allowed: a number"),
    "a bound that is true": ({"at_least": True}, r"rate\.at_least is 'True'; allowed: a number"),
    "an infinite bound": ({"at_most": math.inf}, "allowed: a number"),
    "a bound beyond numbers": ({"at_most": 10**400}, "allowed: a number"),
    "two lower bounds": ({"above": 0, "at_least": 0}, "one of above and at_least"),
    "two upper bounds": ({"below": 0, "at_most": 0}, "one of below and at_most"),
    "bounds without room": ({"above": 1, "below": 1}, "bounds between which"),
    "bounds the wrong way round": ({"at_least": 2, "at_most": 1}, "bounds between which"),
    "a value beside bounds": ({"exactly": 1, "above": 0}, "exactly and one_of alone"),
    "a list beside bounds": ({"length": 2, "above": 0}, "exactly and one_of alone, each"),
    "a number that YAML reads as text": ({"exactly": "1e-9"}, r"exactly is '1e-9'; .*1\.0e-9"),
    "no value": ({"exactly": None}, "exactly is 'None'"),
    "an object": ({"exactly": {"a": 1}}, "exactly is"),
    "a list in a list": ({"exactly": [[1]]}, "exactly is"),
    "nothing to choose from": ({"one_of": []}, "one_of is"),
    "a step of nothing": ({"multiple_of": 0}, r"multiple_of is '0'; allowed: a number above 0"),
    "integer: false": ({"integer": False}, "leave the word out"),
    "a length that is none": ({"length": 1.5}, "whole number"),
    "exactly of each": ({"each": {"exactly": 1}}, "rate.each is"),
    "an unknown count": (
        {"above": 0, "logged": "twice"},
        "logged is 'twice'; allowed: one of once, at_least_once",
    ),
    "a choice that is no key": ({"above": 0, "when": {"name": "sgd"}}, r"rate\.when is"),
    "a choice that is no mapping": ({"above": 0, "when": "sgd"}, r"rate\.when is"),
}


@pytest.mark.parametrize("what", NOT_ALLOWED)
def test_words_and_values_that_are_not_allowed_are_refused_with_file_key_and_value(what, tmp_path):
    entry, sentence = NOT_ALLOWED[what]
    with pytest.raises(RequestError, match=sentence) as said:
        text_of(GOOD | {"hyperparameters": {"rate": entry}}, tmp_path)
    assert str(said.value).startswith(f"{tmp_path / 'rules.yaml'}: hyperparameters.rate")


def changed(path, value):
    document = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    place = document
    for name in way:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


OF_A_BENCHMARK = "benchmarks.x_mini"
WRONG_FACTS = [
    (f"{OF_A_BENCHMARK}.runs", None, "missing .*runs"),
    (f"{OF_A_BENCHMARK}.run", 5, "unknown .*run"),
    (f"{OF_A_BENCHMARK}.runs", "5", "runs is '5'; allowed: a whole number"),
    (f"{OF_A_BENCHMARK}.runs", 2, "runs is '2'; allowed: more than are dropped"),
    (f"{OF_A_BENCHMARK}.drop", -1, "drop is '-1'"),
    (f"{OF_A_BENCHMARK}.unit", "hour", "unit is 'hour'; allowed: one of epoch"),
    (f"{OF_A_BENCHMARK}.counted", "hours", "counted is 'hours'"),
    (f"{OF_A_BENCHMARK}.rcp_allowance", -1, "rcp_allowance is '-1'"),
    (f"{OF_A_BENCHMARK}.data", {"train": "a" * 64}, "data has fields that are missing .*evaluation"),
    (
        f"{OF_A_BENCHMARK}.data",
        {"train": "a" * 64, "evaluation": "A" * 64},
        "data.evaluation is 'AAA.*a sha256",
    ),
    (f"{OF_A_BENCHMARK}.target", {}, "at least one metric"),
    (f"{OF_A_BENCHMARK}.target", {"top1": 0.5}, "at_least or at_most"),
    (f"{OF_A_BENCHMARK}.target", {"top1": {"at_least": 24}}, "state best"),
    (f"{OF_A_BENCHMARK}.target", {"a'b": {"at_least": 1}}, "names of letters"),
    (f"{OF_A_BENCHMARK}.schedule", {"name": "never"}, "schedule is .*; allowed: name: one of every"),
    (f"{OF_A_BENCHMARK}.schedule", {"name": "every", "period": 1}, "schedule is .*'first'"),
    (f"{OF_A_BENCHMARK}.schedule.period", "1", "period is '1'"),
    (f"{OF_A_BENCHMARK}.schedule.first", 1, "first is '1'"),
    (
        f"{OF_A_BENCHMARK}.hyperparameters",
        {"rate": {"above": 1}},
        "hyperparameters is 'rate'; .* for all, too",
    ),
    ("benchmarks", ["x_mini"], "benchmarks is"),
    ("hyperparameters", None, "missing .*hyperparameters"),
    ("hyperparameters", {"rate'": {"above": 1}}, "names of letters"),
    ("hyperparameters", {"seed": {"above": 1}}, "is 'seed'; allowed: keys that the round does not"),
    ("rules", "x", "unknown .*rules"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG_FACTS)
def test_facts_that_are_unknown_missing_or_wrong_are_refused(path, value, sentence, tmp_path):
    with pytest.raises(RequestError, match=sentence) as said:
        text_of(changed(path, value), tmp_path)
    assert str(said.value).startswith(str(tmp_path / "rules.yaml"))


@pytest.mark.parametrize(
    "content",
    [
        "a: [",
        "round: mini-1.0\nround: mini-1.0\n",
        "x: !!python/object/apply:os.getcwd []",
        "- a",
        "",
        "x: " + "9" * 5000,
    ],
)
def test_a_file_that_is_no_plain_yaml_is_refused(content, tmp_path):
    (tmp_path / "rules.yaml").write_text(content)
    stated.read.cache_clear()
    with pytest.raises(RequestError, match=r"rules\.yaml"):
        stated.benchmark(tmp_path, "x_mini")
