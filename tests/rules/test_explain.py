"""A failed rule becomes a sentence with the key, the value seen and what is allowed."""

import contextlib
import re
from pathlib import Path

import mlperf_logging
import pytest
import yaml

from tests.command_line import typed
from train_bench.core.event import Event
from train_bench.rules import rulefile, ruleset
from train_bench.rules.checks import Failure, check
from train_bench.rules.describe_rule import in_words
from train_bench.rules.disclosures import DISCLOSURES
from train_bench.rules.explain import explain

OFFICIAL = Path(mlperf_logging.__file__).parent / "compliance_checker"

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
    "s['init_stopped']": ("only after init_stop",),
    "not s['run_started']": ("only before run_start",),
    "len(v['value']) == 2": ("2 numbers",),
    "0 < v['value'] <= 1": ("more than 0 and at most 1",),
    "v['value'] == s['shapes'][s['benchmark']]": ("only the shapes of the benchmark of this log",),
    "s['block'] is None": ("while no block is under way",),
    "s['block'] is not None and v['metadata']['first_epoch_num'] == s['block']": (
        "first_epoch_num that of the block under way",
    ),
    "v['metadata']['status'] == 'aborted' or s['block'] is s['evaluation'] is None": (
        "'success' only while no block and no evaluation is under way",
    ),
    "all(epoch >= 0 for epoch in v['value'])": ("each at least 0",),
    "v['value'] in [1, float('inf')]": ("one of 1, infinity",),
    "all(0 < item <= 2 for item in v['value'])": ("each more than 0 and at most 2",),
    "all(is_integer(item) for item in v['value'])": ("each a whole number",),
    "v['value'] == sorted(v['value'])": ("in ascending order",),
    "sorted(v['value']) == ['BBOX', 'SEGM']": ("an object with 'BBOX' and 'SEGM'",),
    "isinstance(v['value'], (int, float))": ("a number",),
    "s['values'].get('opt_name') == 'sgd'": ("only with opt_name 'sgd'",),
    "v['value'] == 12000 - s['opt_steps']": ("only 12000 - opt_steps",),
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
        ("AT_LEAST(2)", 1, ("1 time(s)", "at least 2")),
        ("AT_LEAST_ONE_OR(other)", 0, ("missing", "other")),
    ],
)
def test_a_required_count_is_explained(requirement, seen, parts):
    sentence = explain(Failure(kind="count", key="some_key", rule=requirement, value=seen))
    for part in ("some_key", *parts):
        assert part in sentence


def test_a_disclosure_that_is_missing_is_explained():
    sentence = explain(Failure(kind="count", key="expert_parallelism", rule="EXACTLY_ONE", value=0))
    assert sentence == (
        "expert_parallelism is missing; log it exactly once: ranks that share the experts of a layer; 1 for none."
    )


def test_every_key_that_6_1_requires_and_no_round_before_is_a_disclosure():
    def required(name, benchmark):
        rules = ruleset.load(name).benchmark(benchmark)
        return {failure.key for failure in check(rules, []) if failure.kind == "count"}

    added = required("training-6.1.0", "llama31_8b") - required("training-5.1.0", "llama31_8b")
    assert added & DISCLOSURES.keys() == DISCLOSURES.keys()


def test_a_rule_that_is_no_expression_is_shown_as_it_is():
    sentence = explain(Failure(kind="check", key="some_key", rule="KeyError: 'x' (", line=3, value=1))
    assert "KeyError: 'x' (" in sentence


def every_file():
    for path in OFFICIAL.rglob("*.yaml"):
        with contextlib.suppress(ValueError, TypeError, yaml.YAMLError):  # known defects
            yield rulefile.read(path)
    for rules in ruleset.load("mini-1.0").benchmarks.values():
        yield rules.files(rules.start)


def every_check():
    for file in every_file():
        for key in file.keys.values():
            once = (key.at_least_one,) if key.at_least_one else ()
            yield from (*key.checks, *key.lost_checks, *key.first_checks, *once)
        yield from file.end_checks


def test_no_rule_of_any_round_is_told_in_the_variables_of_rule_files():
    texts = {one.text for one in every_check()}
    assert len(texts) > 250
    leaks = {text for text in texts if re.search(r"\b[sv]\[|\bll\.", in_words(text))}
    assert not leaks


MASKRCNN = ruleset.load("mini-1.0").benchmark("maskrcnn_mini")


def sentences(*events):
    lines = [Event(key=key, value=value, time_ms=0, metadata=metadata) for key, value, metadata in events]
    return [explain(failure) for failure in check(MASKRCNN, lines)]


def test_a_bound_of_the_benchmark_is_told_as_a_value():
    said = sentences(("submission_benchmark", "maskrcnn_mini", {}), ("min_image_size", 7, {}))
    (size,) = (sentence for sentence in said if sentence.startswith("min_image_size is 7"))
    assert "allowed: only 64" in size


def test_an_event_has_no_value_that_could_be_wrong():
    said = sentences(("block_start", None, {"first_epoch_num": 1, "epoch_count": 1}), ("init_stop", None, {}))
    stop = next(sentence for sentence in said if sentence.startswith("init_stop breaks"))
    assert "None" not in stop
    assert "breaks its rule; allowed: " in stop


def test_on_80_columns_the_table_of_keys_breaks_no_word_in_a_pipe_either(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = typed("rules", "benchmark=resnet").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert {"occurs", "allowed", "reference", "exactly"} <= words


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ("resnet", "initialization: at most 20 minutes (the official checker looks for 30 alone)"),
        ("resnet_mini", "initialization: at most 30 minutes"),
    ],
)
def test_both_limits_of_the_initialization_are_told_apart(benchmark, said):
    assert said in typed("rules", f"benchmark={benchmark}").stdout.splitlines()
