"""An expression of a rule file -> words: the usual shapes; what has none of them stays as it is written."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

COMPARISONS = {
    ast.GtE: "at least",
    ast.Gt: "more than",
    ast.LtE: "at most",
    ast.Lt: "less than",
}


@cache
def in_words(rule: str) -> str:
    """What a value has to be, for example `at least 0.759 and less than 1.0`."""
    try:
        node = ast.parse(rule, mode="eval").body
    except (SyntaxError, ValueError):  # no expression, but what went wrong, perhaps with a value of a log
        return rule
    return _all(node)


def in_words_of_count(requirement: str) -> str:
    """How often a key has to be logged."""
    if requirement.startswith("AT_LEAST_ONE_OR("):
        return f"at least once, or {requirement[len('AT_LEAST_ONE_OR(') : -1]}"
    if requirement.startswith("AT_LEAST("):
        return f"at least {requirement[len('AT_LEAST(') : -1]} times"
    words = {"EXACTLY_ONE": "exactly once", "AT_LEAST_ONE": "at least once", "OPTIONAL": "optional"}
    return words.get(requirement, requirement)


def literal(node: ast.expr) -> Any:
    """The value of a literal, else the expression as text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _all(node: ast.expr) -> str:
    """Alternatives and conjunctions of known shapes."""
    if isinstance(node, ast.BoolOp):
        joint = " and " if isinstance(node.op, ast.And) else " or "
        return joint.join(_words(part) or ast.unparse(part) for part in node.values)
    return _words(node) or ast.unparse(node)


def _words(node: ast.expr) -> str | None:
    for shape in (_conditional, _either, _range, _minutes, _comparison, _present, _whole, _state):
        found = shape(node)
        if found:
            return found
    return None


def _conditional(node: ast.expr) -> str | None:
    """`... if 'epoch_count' in v['metadata'] else True`."""
    if not isinstance(node, ast.IfExp) or literal(node.orelse) is not True:
        return None
    condition = _present(node.test)
    return f"with {condition.removeprefix('a line with ')}: {_all(node.body)}" if condition else None


def _either(node: ast.expr) -> str | None:
    """`('epoch_num' in v['metadata']) | ('samples_count' in v['metadata'])`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return None
    left, right = _present(node.left), _present(node.right)
    return f"{left} or {right.removeprefix('a line with ')}" if left and right else None


def _range(node: ast.expr) -> str | None:
    """`0.0 <= v['value'] <= 1.0`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 2:
        return None
    name = _subject(node.comparators[0])
    if name is None or not all(isinstance(operator, ast.LtE) for operator in node.ops):
        return None
    between = f"from {ast.unparse(node.left)} to {ast.unparse(node.comparators[1])}"
    return f"{name} {between}".strip()


def _minutes(node: ast.expr) -> str | None:
    """`ll.timestamp - s['first_init_start'] < (30*60*1e3)`: milliseconds since another event."""
    if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.BinOp):
        return None
    if ast.unparse(node.left.left) != "ll.timestamp" or not isinstance(node.ops[0], ast.Lt):
        return None
    event = _key_of_state(node.left.right).removesuffix(" ms").removeprefix("first ")
    factors = ast.unparse(node.comparators[0]).removesuffix(" * 60 * 1000.0").removesuffix(" * 60 * 1000")
    limit = f"{factors} minutes" if factors.isdecimal() else "the minutes that the division allows"
    return f"less than {limit} after {event}"


def _comparison(node: ast.expr) -> str | None:
    """`v['value'] == 2`, `in [...]`, `>= x`, `!= ''`, and the same of an item of the metadata."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    subject, comparator, operator = node.left, node.comparators[0], node.ops[0]
    name = _subject(subject)
    if name is None:
        return None
    prefix = f"{name} " if name else ""
    value = literal(comparator)
    if isinstance(operator, ast.Eq):
        return f"{prefix}only {_value(comparator)}"
    if isinstance(operator, ast.In) and isinstance(value, (list, tuple, set)):
        return prefix + "one of " + ", ".join(repr(item) for item in value)
    if isinstance(operator, ast.NotEq):
        return f"{prefix}anything but {value!r}" if value != "" else f"{prefix}not empty"
    word = COMPARISONS.get(type(operator))
    return f"{prefix}{word} {_value(comparator)}" if word else None


def _present(node: ast.expr) -> str | None:
    """`'epoch_num' in v['metadata']`."""
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and isinstance(node.left, ast.Constant)
        and ast.unparse(node.comparators[0]) in ("v['metadata']", "v['value']", "v")
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
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _is_state(node.operand):
        return f"only before {_key_of_state(node.operand)}"
    if _is_state(node):
        return f"only after {_key_of_state(node)}"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        if ast.unparse(node.left).startswith("s['values'].setdefault("):
            return "the same in every line"
        if _is_state(node.left):
            value = literal(node.comparators[0])
            name = _key_of_state(node.left)
            return f"only after {name}" if value is True else f"only with {name} {value!r}"
    return None


def _is_state(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "s"


def _key_of_state(node: ast.expr) -> str:
    return (
        str(literal(node.slice)).replace("_", " ") if isinstance(node, ast.Subscript) else ast.unparse(node)
    )


def _value(node: ast.expr) -> str:
    """A literal as Python shows it; what an earlier line set, by its name."""
    if _is_state(node):
        return f"the {_key_of_state(node)} of this log"
    value = literal(node)
    return ast.unparse(node) if isinstance(value, str) and not isinstance(node, ast.Constant) else repr(value)


def _subject(node: ast.expr) -> str | None:
    """ "" for the value itself, the item's name for one of an object or of the metadata, else None."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float") and len(node.args) == 1:
        node = node.args[0]
    if ast.unparse(node) == "v['value']":
        return ""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("v['metadata']", "v['value']"):
        return str(literal(node.slice))
    return None
