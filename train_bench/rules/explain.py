"""A failed rule -> a sentence: the key, the value seen, what is allowed, the next step."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from train_bench.rules.checks import Failure

COMPARISONS = {
    ast.GtE: "at least",
    ast.Gt: "more than",
    ast.LtE: "at most",
    ast.Lt: "less than",
}


# Sections of the training rules that a key is about; the first pattern that matches counts.
PARAGRAPHS = (
    ("seed", "Random Numbers"),
    ("cache_clear", "Data State at Start of Run"),
    ("weights_initialization", "Weight Initialization"),
    ("init_.*|run_.*|block_.*|epoch_st.*", "Run Results"),
    ("eval_.*|aggregated_eval.*", "Quality Measure"),
    ("train_samples", "Data Set"),
    ("submission_.*", "Divisions"),
    ("opt_.*|.*learning_rate.*|global_batch_size|gradient_.*|.*lr_.*", "Hyperparameters and Optimizer"),
)

LONGEST_VALUE = 200


def explain(failure: Failure) -> str:
    """The sentence for a person."""
    if failure.kind == "count":
        return _count(failure)
    if failure.kind == "target":
        seen = "never logged" if failure.value is None else f"last {_shown(failure.value)}"
        return f"The target was not reached: {failure.key} was {seen}; demanded: {in_words(failure.rule)}."
    if failure.kind == "end":
        return _names(failure) or f"At the end of the log this does not hold: {_cut(failure.rule)}."
    return f"{failure.key} is {_shown(failure.value)}; allowed: {in_words(failure.rule)}."


def allowed(failure: Failure) -> str:
    """What would have satisfied the rule."""
    if failure.kind == "count":
        return in_words_of_count(failure.rule)
    return _cut(in_words(failure.rule))


def paragraph(key: str | None) -> str | None:
    """The section of the training rules that a key is about."""
    for pattern, section in PARAGRAPHS:
        if key is not None and re.fullmatch(pattern, key):
            return f'training rules, "{section}"'
    return None


def next_step(failure: Failure) -> str:
    """What to do about it."""
    if failure.kind == "count":
        return f"Log {failure.key} as the rule asks and run again."
    if failure.kind == "target":
        return "Count the run as not converged, or train longer."
    return f"Set {failure.key or 'it'} to an allowed value and run again; a log is never edited."


def in_words_of_count(requirement: str) -> str:
    """How often a key has to be logged."""
    if requirement.startswith("AT_LEAST_ONE_OR("):
        return f"at least once, or {requirement[len('AT_LEAST_ONE_OR(') : -1]}"
    if requirement.startswith("AT_LEAST("):
        return f"at least {requirement[len('AT_LEAST(') : -1]} times"
    words = {"EXACTLY_ONE": "exactly once", "AT_LEAST_ONE": "at least once", "OPTIONAL": "optional"}
    return words.get(requirement, requirement)


def _names(failure: Failure) -> str | None:
    """`sorted(s['x']) == sorted([...])`: a list of names that a log has to have, as what it lacks."""
    node = ast.parse(failure.rule, mode="eval").body
    if not isinstance(node, ast.Compare) or not isinstance(failure.value, list):
        return None
    demanded = next((item for item in ast.walk(node.comparators[0]) if isinstance(item, ast.List)), None)
    if demanded is None:
        return None
    wanted = Counter(str(_literal(item)) for item in demanded.elts)
    logged = Counter(map(str, failure.value))
    parts = []
    for what, names in (("missing", wanted - logged), ("not expected", logged - wanted)):
        if names:
            first = ", ".join(list(names)[:3])
            parts.append(f"{names.total()} {what} ({first}{', ...' if len(names) > 3 else ''})")
    return f"{failure.key} names {logged.total()} of {wanted.total()} tensors: {'; '.join(parts)}."


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
        return f"{key} {what}; log it exactly once."
    least = "once" if rule == "AT_LEAST_ONE" else f"{rule[len('AT_LEAST(') : -1]} times"
    return f"{key} is logged {seen} times; log it at least {least}."


def in_words(rule: str) -> str:
    """The rule in words where its shape is one of the usual ones, else the expression itself."""
    try:
        node = ast.parse(rule, mode="eval").body
    except SyntaxError:
        return rule
    parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
    words = [_words(part) for part in parts]
    return " and ".join(word or ast.unparse(part) for word, part in zip(words, parts, strict=True))


def _words(node: ast.expr) -> str | None:
    for shape in (_comparison, _present, _whole, _state):
        found = shape(node)
        if found:
            return found
    return None


def _comparison(node: ast.expr) -> str | None:
    """`v['value'] == 2`, `in [...]`, `>= x`, `!= ''`, and the same of an item of the metadata."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    subject, comparator, operator = node.left, node.comparators[0], node.ops[0]
    name = _subject(subject)
    if name is None:
        return None
    prefix = f"{name} " if name else ""
    value = _literal(comparator)
    if isinstance(operator, ast.Eq):
        return f"{prefix}only {value!r}"
    if isinstance(operator, ast.In) and isinstance(value, (list, tuple, set)):
        return prefix + "one of " + ", ".join(repr(item) for item in value)
    if isinstance(operator, ast.NotEq):
        return f"{prefix}anything but {value!r}" if value != "" else f"{prefix}not empty"
    word = COMPARISONS.get(type(operator))
    return f"{prefix}{word} {ast.unparse(comparator)}" if word else None


def _present(node: ast.expr) -> str | None:
    """`'epoch_num' in v['metadata']`."""
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and isinstance(node.left, ast.Constant)
        and ast.unparse(node.comparators[0]) in ("v['metadata']", "v")
    ):
        return f"a line with {node.left.value!r}"
    return None


def _whole(node: ast.expr) -> str | None:
    """`is_integer(v['value'] / 0.001)` and `is_integer(math.log2(v['value'] / 0.0001))`."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "is_integer"):
        return None
    inner = node.args[0]
    power = isinstance(inner, ast.Call) and ast.unparse(inner.func) == "math.log2"
    if power and isinstance(inner, ast.Call):
        inner = inner.args[0]
    if _subject(inner) == "":
        return "a power of two" if power else "a whole number"
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div) and _subject(inner.left) == "":
        step = ast.unparse(inner.right)
        return f"{step} times a power of two" if power else f"a multiple of {step}"
    return None


def _state(node: ast.expr) -> str | None:
    """`s['opt_name'] == 'lars'`: what has to hold when this line comes."""
    text = ast.unparse(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and text.startswith("not s["):
        return f"only before {_literal_key(node.operand).replace('_', ' ')}"
    if isinstance(node, ast.Subscript) and text.startswith("s["):
        return f"only after {_literal_key(node).replace('_', ' ')}"
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and ast.unparse(node.left).startswith("s[")
    ):
        return f"only with {_literal_key(node.left)} {_literal(node.comparators[0])!r}"
    return None


def _literal_key(node: ast.expr) -> str:
    return (
        str(_literal(node.slice)).replace("_", " ") if isinstance(node, ast.Subscript) else ast.unparse(node)
    )


def _subject(node: ast.expr) -> str | None:
    """ "" for the value itself, the item's name for one of the metadata, else None."""
    text = ast.unparse(node)
    if text in ("v['value']", "float(v['value'])", "int(v['value'])"):
        return ""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "v['metadata']":
        return str(_literal(node.slice))
    return None


def _literal(node: ast.expr) -> Any:
    evaluate: Callable[[ast.expr], Any] = ast.literal_eval
    try:
        return evaluate(node)
    except ValueError:
        return ast.unparse(node)
