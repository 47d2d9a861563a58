"""Equality of fractions: the rule counts, not the arithmetic of the official checker."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from train_bench.core.event import Event
from train_bench.judge.checks.rule_files import broken_rule
from train_bench.rules import ruleset
from train_bench.rules.checks import check
from train_bench.rules.expected import expected_numbers

LLAMA = ruleset.load("training-6.0.0").benchmark("llama31_405b")
BATCH_SIZES = range(1152, 9217, 16)

COMPUTED = {
    "v['value'] * 1152 == s['global_batch_size'] * 8e-5",
    "v['value'] == math.ceil(1_200_000 * 1152 / s['global_batch_size'] ) - s['opt_learning_rate_warmup_steps']",
    "int(v['metadata']['samples_count']) == s['global_batch_size'] * math.floor(42 + 24576 / s['global_batch_size'])",
    "abs(v['value'] - 2.4e-05 * (s['global_batch_size'] / 16384) ** 0.5) < 1e-9",
    "abs(v['value'] - 0.125 * (256 / s['global_batch_size']) ** 0.5) < 1e-9",
    "s['global_batch_size'] == s['num_prompts_per_step'] * v['value']",
    "v['value'] == 1_200_000 - s['opt_learning_rate_warmup_steps']",
    "v['value'] == 12000 - s['opt_learning_rate_warmup_steps']",
}
"""Equalities of computed numbers in the rule files of all rounds. The others compare with a number as it stands."""


def failures(value, batch_size, rules=LLAMA, key="opt_base_learning_rate"):
    listed = {
        "submission_division": "closed",
        "submission_benchmark": rules.name,
        "global_batch_size": batch_size,
        key: value,
    }
    events = [Event(key=one, value=of, time_ms=0) for one, of in listed.items()]
    return [one for one in check(rules, events) if one.key == key and one.kind == "check"]


def findings(*args, **options):
    rules = options.get("rules", LLAMA)
    return [broken_rule("result_0.txt", one, rules, ()) for one in failures(*args, **options)]


def test_the_rule_files_have_no_other_computed_equalities():
    """A new one is to be tried over its batch sizes, as those below are."""
    found = set()
    for path in Path(ruleset.package_folder("compliance_checker")).glob("*/*.yaml"):
        if not path.parent.name.startswith(("training_0", "training_0.7")):
            for text in re.findall(r"\"([^\"]*(?:==|< 1e-9)[^\"]*)\"", path.read_text()):
                if (
                    re.search(r"[*/]|\d -|\] \*\*", text)
                    and "is_integer" not in text
                    and "sorted" not in text
                    and "enqueue" not in text
                ):
                    found.add(text.strip())
    assert found == COMPUTED


def test_the_rate_that_the_text_asks_for_is_no_broken_rule_at_any_batch_size():
    refused = 0
    for size in BATCH_SIZES:
        found = findings(round(8e-5 * size / 1152, 8), size)
        assert all(one.grade == "waived" for one in found), size
        refused += len(found)
    assert refused > 0.9 * len(BATCH_SIZES)  # by the official checker


@pytest.mark.parametrize("factor", [1 - 1e-15, 1 + 1e-15, 1.0])
def test_the_exact_rate_is_right_in_any_order_of_its_products(factor):
    assert all(
        one.grade == "waived" for size in BATCH_SIZES for one in findings(8e-5 * size / 1152 * factor, size)
    )


@pytest.mark.parametrize(("value", "size"), [(8.9e-5, 1280), (8.8883e-5, 1280), (8e-5, 1168), (0.0, 1280)])
def test_another_rate_breaks_the_rule_and_the_sentence_has_both_numbers(value, size):
    (found,) = findings(value, size)
    assert found.grade == "breaks"
    assert found.message.startswith(
        f"opt_base_learning_rate is {value!r}; allowed: {8e-5 * size / 1152:.10g} ("
    )


def test_whole_numbers_are_exact():
    (found,) = findings(1_080_001, 1280, key="opt_learning_rate_decay_steps")
    assert found.grade == "breaks"
    (found,) = findings(8192.0000001, 1280, key="max_sequence_length")
    assert found.grade == "breaks"


@pytest.mark.parametrize("size", [15360, 16000, 16384, 17000, 18432])
def test_the_rate_of_deepseek_may_be_rounded_as_its_text_says(size):
    rules = ruleset.load("training-6.0.0").benchmark("deepseekv3_671b")
    assert findings(round(0.000024 * math.sqrt(size / 16384), 9), size, rules=rules) == []


def test_a_number_in_single_precision_is_the_number():
    (found,) = findings(float(np.float32(0.95)), 1152, key="opt_adamw_beta_2")
    assert found.grade == "waived" and "fractions-compared-exactly" in found.message
    assert [one.grade for one in findings(0.9501, 1152, key="opt_adamw_beta_2")] == ["breaks"]


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("v['value'] * 1152 == s['size'] * 8e-5", (8.888888888888889e-05,)),
        ("v['value'] == math.ceil(1000 / s['size'])", (1,)),
        ("v['value'] == 2e-5 or v['value'] == 3e-5", (2e-5, 3e-5)),
        ("s['size'] == 16 * v['value']", (80,)),
        ("abs(v['value'] - 0.5 * s['size']) < 1e-9", (640.0,)),
        ("int(v['metadata']['count']) == 2 * s['size']", (2560,)),
        ("v['value'] == 'adamw'", ()),
        ("v['value'] > 0.5", ()),
        ("v['value'] ** 2 == s['missing']", ()),
    ],
)
def test_numbers_that_a_rule_asks_for(rule, numbers):
    state = {"s": {"size": 1280}, "math": math}
    found = expected_numbers(rule, state, {"value": 0.5, "metadata": {"count": 7}})
    assert found == pytest.approx(numbers, rel=1e-12)
    assert [type(one) for one in found] == [type(one) for one in numbers]
