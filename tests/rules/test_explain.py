"""A failed rule becomes a sentence with the key, the value seen and what is allowed."""

import pytest

from train_bench.rules.checks import Failure
from train_bench.rules.explain import explain

SHAPES = {
    "v['value'] == 0.9": ("0.8", "only 0.9"),
    "v['value'] in ['sgd', 'lars']": ("'sgd'", "'lars'"),
    "v['value'] >= 1": ("at least 1",),
    "v['value'] > 0": ("more than 0",),
    "v['value'] != ''": ("not empty",),
    "is_integer(v['value'])": ("whole number",),
    "is_integer(v['value'] / 0.001)": ("multiple of 0.001",),
    "is_integer(math.log2(v['value'] / 0.0001))": ("0.0001 times a power of two",),
    "'epoch_num' in v['metadata']": ("'epoch_num'",),
    "v['value'] >= 0.759 and v['value'] < 1.0": ("at least 0.759", "less than 1.0"),
    "s['init_stopped']": ("after init stopped",),
    "not s['run_started']": ("before run started",),
    "len(v['value']) == 2": ("len(v['value']) == 2",),
}


@pytest.mark.parametrize("rule", SHAPES)
def test_a_sentence_names_key_value_and_what_is_allowed(rule):
    sentence = explain(Failure(kind="check", key="some_key", rule=rule, line=3, value=0.8))
    for part in ("some_key", "0.8", *SHAPES[rule]):
        assert part in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("requirement", "seen", "parts"),
    [
        ("EXACTLY_ONE", 0, ("missing", "exactly once")),
        ("EXACTLY_ONE", 2, ("2 times", "exactly once")),
        ("AT_LEAST_ONE", 0, ("at least once",)),
        ("AT_LEAST(2)", 1, ("1 times", "at least 2")),
        ("AT_LEAST_ONE_OR(other)", 0, ("missing", "other")),
    ],
)
def test_a_required_count_is_explained(requirement, seen, parts):
    sentence = explain(Failure(kind="count", key="some_key", rule=requirement, value=seen))
    for part in ("some_key", *parts):
        assert part in sentence


def test_a_rule_that_is_no_expression_is_shown_as_it_is():
    sentence = explain(Failure(kind="check", key="some_key", rule="KeyError: 'x' (", line=3, value=1))
    assert "KeyError: 'x' (" in sentence
