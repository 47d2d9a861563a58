"""Explanation of a failed rule: the key, the logged value, the allowed values, the next step."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from functools import cache
from typing import Any

from train_bench.rules.checks import Failure
from train_bench.rules.describe_rule import in_words, in_words_of_count, literal
from train_bench.rules.disclosures import DISCLOSURES

# Sections of the training rules that a key is about; the first pattern that matches counts.
PARAGRAPHS = (
    ("seed", "Random Numbers"),
    ("cache_clear", "Data State at Start of Run"),
    ("weights_initialization", "Weight Initialization"),
    ("init_.*|run_.*|block_.*|epoch_st.*", "Run Results"),
    ("eval_.*|aggregated_eval.*", "Quality Measure"),
    ("train_samples", "Data Set"),
    ("submission_.*", "Divisions"),
    (".*opt_.*|.*learning_rate.*|.*lr_.*|lars_.*|model_.*", "Hyperparameters and Optimizer"),
    ("global_batch_size|gradient_.*|max_.*|num_.*", "Hyperparameters and Optimizer"),
)

LONGEST_VALUE = 200

NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[-+]?\d+)?")

EXCEPTION = re.compile(r"\w+: ")
"""Beginning of the rule of a failure whose code could not be carried out."""


def explain(failure: Failure) -> str:
    """The explanation as a sentence."""
    if failure.kind == "count":
        return _count(failure)
    if failure.kind == "target":
        seen = "never logged" if failure.value is None else f"last {_shown(failure.value)}"
        return f"The target was not reached: {failure.key} was {seen}; demanded: {in_words(failure.rule)}."
    if failure.kind == "absent":
        return f"No log can be checked, because this does not hold: {failure.rule}."
    if failure.kind == "end":
        return _names(failure) or f"At the end of the log this does not hold: {allowed(failure)}."
    if EXCEPTION.match(failure.rule):
        return f"{failure.key} is {_shown(failure.value)}; the rule of it cannot take that ({_cut(failure.rule)})."
    return f"{failure.key} {_seen(failure)}; allowed: {allowed(failure)}."


def allowed(failure: Failure) -> str:
    """Values that would have satisfied the rule."""
    if failure.kind == "absent":
        return failure.rule
    if failure.kind == "count":
        return in_words_of_count(failure.rule)
    words = in_words(failure.rule)
    numbers = " or ".join(dict.fromkeys(f"{number:.10g}" for number in failure.expected))
    if not numbers or all(_names_it(number, words) for number in failure.expected):
        return _cut(words)
    return _cut(f"{numbers} ({words})")


def _names_it(number: float, words: str) -> bool:
    """True if a rule in words has the number that it asks for."""
    return any(math.isclose(number, float(one)) for one in NUMBER.findall(words)) and words.startswith(
        "only "
    )


def paragraph(key: str | None) -> str | None:
    """The section of the training rules that a key is about."""
    for pattern, section in PARAGRAPHS:
        if key is not None and re.fullmatch(pattern, key):
            return f'training rules, "{section}"'
    return None


def next_step(failure: Failure) -> str:
    """Next step for the user."""
    if failure.kind == "count":
        return f"Log {failure.key} as the rule asks and run again."
    if failure.kind == "target":
        return "Count the run as not converged, or train longer."
    return f"Set {failure.key or 'it'} to an allowed value and run again; a log is never edited."


def _names(failure: Failure) -> str | None:
    """`sorted(s['x']) == sorted([...])`: a list of required names, as the names that a log lacks."""
    wanted = _demanded(failure.rule) if isinstance(failure.value, list) else None
    if wanted is None:
        return None
    logged = Counter(map(str, failure.value))
    parts = []
    for what, names in (("missing", wanted - logged), ("not expected", logged - wanted)):
        if names:
            first = ", ".join(list(names)[:3])
            parts.append(f"{names.total()} {what} ({first}{', ...' if len(names) > 3 else ''})")
    return f"{failure.key} names {logged.total()} of {wanted.total()} tensors: {'; '.join(parts)}."


@cache
def _demanded(rule: str) -> Counter[str] | None:
    """The names of the list on the right of a comparison."""
    node = ast.parse(rule, mode="eval").body
    right = node.comparators[0] if isinstance(node, ast.Compare) else node
    names = next((item for item in ast.walk(right) if isinstance(item, ast.List)), None)
    return None if names is None else Counter(str(literal(item)) for item in names.elts)


def _seen(failure: Failure) -> str:
    """Events have no value: their rules are about their times, their order and their metadata."""
    if failure.value is not None:
        return f"is {_shown(failure.value)}"
    return "has no value" if "v['value']" in failure.rule else "breaks its rule"


def _shown(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _count(failure: Failure) -> str:
    key, seen, rule = failure.key, failure.value, failure.rule
    if rule.startswith("AT_LEAST_ONE_OR("):
        return f"{key} is missing, and so is {rule[len('AT_LEAST_ONE_OR(') : -1]}; log one of them."
    if rule == "EXACTLY_ONE":
        what = "is missing" if seen == 0 else f"is logged {seen} times with different values"
        meaning = f": {DISCLOSURES[key]}" if key in DISCLOSURES else ""
        return f"{key} {what}; log it exactly once{meaning}."
    least = "once" if rule == "AT_LEAST_ONE" else f"{rule[len('AT_LEAST(') : -1]} time(s)"
    return f"{key} is logged {seen} time(s); log it at least {least}."
