"""Rule expressions in words: common shapes as phrases, all others as a formula with readable names for the variables of
rule files."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

COMPARISONS = {
    ast.GtE: "at least",
    ast.Gt: "more than",
    ast.LtE: "at most",
    ast.Lt: "less than",
}

SENTENCES = {
    "s['block'] is not None and v['metadata']['first_epoch_num'] == s['block']": (
        "first_epoch_num that of the block under way"
    ),
    "s['evaluation'] is not None and v['metadata']['epoch_num'] == s['evaluation']": (
        "epoch_num that of the evaluation under way"
    ),
    "v['metadata']['status'] == 'aborted' or s['block'] is s['evaluation'] is None": (
        "status 'success' only while no block and no evaluation is under way"
    ),
}
"""Rules of several lines of a log, as a whole."""

EVENTS = {
    f"{event}_{ended}": f"{event}_{end}"
    for event in ("init", "run")
    for ended, end in (("started", "start"), ("stopped", "stop"))
}
"""The line of a log after which a flag of rule files is set."""


@lru_cache(maxsize=4096)
def in_words(rule: str) -> str:
    """Required value, for example `at least 0.759 and less than 1.0`."""
    try:
        node = ast.parse(rule, mode="eval").body
    except (SyntaxError, ValueError):  # not an expression but an error text, perhaps with a value of a log
        return rule
    return SENTENCES.get(ast.unparse(node)) or _all(node)


def in_words_of_count(requirement: str) -> str:
    """Required number of occurrences of a key."""
    if requirement.startswith("AT_LEAST_ONE_OR("):
        return f"at least once, or {requirement[len('AT_LEAST_ONE_OR(') : -1]}"
    if requirement.startswith("AT_LEAST("):
        return f"at least {requirement[len('AT_LEAST(') : -1]} times"
    counts = {"EXACTLY_ONE": "exactly once", "AT_LEAST_ONE": "at least once", "OPTIONAL": "optional"}
    return counts.get(requirement, requirement)


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
        return joint.join(_words(part) or _formula(part) for part in node.values)
    return _words(node) or _formula(node)


def _formula(node: ast.expr) -> str:
    """`v['value'] == 12000 - s['opt_x']` -> `value == 12000 - opt_x`."""
    return ast.unparse(_Names().visit(ast.parse(ast.unparse(node), mode="eval"))).replace("math.", "")


class _Names(ast.NodeTransformer):
    """Names for a value, an item of the metadata or the state of earlier lines."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        subject = _subject(node)
        if subject is not None:
            return ast.Name(subject or "value")
        if _is_state(node):
            return ast.Name(str(literal(node.slice)))
        if ast.unparse(node) == "v['metadata']":
            return ast.Name("metadata")
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node) == "float('inf')":
            return ast.Name("infinity")
        if ast.unparse(node.func) == "s.get" and node.args:
            return ast.Name(str(literal(node.args[0])))
        return self.generic_visit(node)  # type: ignore[return-value]


def _words(node: ast.expr) -> str | None:
    for shape in (
        _conditional,
        _either,
        _range,
        _minutes,
        _sorted,
        _comparison,
        _present,
        _whole,
        _state,
        _listed,
    ):
        words = shape(node)
        if words:
            return words
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
    """`0.0 <= v['value'] <= 1.0`, `0 < v['value'] < 1`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 2:
        return None
    name = _subject(node.comparators[0])
    if name is None or not all(isinstance(operator, (ast.Lt, ast.LtE)) for operator in node.ops):
        return None
    low, high = _value(node.left), _value(node.comparators[1])
    if all(isinstance(operator, ast.LtE) for operator in node.ops):
        return f"{name} from {low} to {high}".strip()
    below, above = (
        f"{'at' if isinstance(operator, ast.LtE) else word} {'' if isinstance(operator, ast.Lt) else end} "
        for operator, word, end in zip(node.ops, ("more than", "less than"), ("least", "most"), strict=True)
    )
    return f"{name} {below.rstrip()} {low} and {above.rstrip()} {high}".strip()


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


def _sorted(node: ast.expr) -> str | None:
    """`v['value'] == sorted(v['value'])`, `sorted(v['value']) == ['a', 'b']`."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq) or len(node.ops) != 1:
        return None
    left, right = ast.unparse(node.left), node.comparators[0]
    if (left, ast.unparse(right)) == ("v['value']", "sorted(v['value'])"):
        return "in ascending order"
    if left == "sorted(v['value'])" and isinstance(right, ast.List):
        return "an object with " + " and ".join(_value(item) for item in right.elts)
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
    value = literal(comparator)
    if isinstance(operator, ast.Eq):
        return f"{prefix}only {_value(comparator)}"
    if isinstance(operator, ast.In) and isinstance(comparator, (ast.List, ast.Tuple, ast.Set)):
        return prefix + "one of " + ", ".join(_value(item) for item in comparator.elts)
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
    """`s['opt_name'] == 'lars'`: condition on the state when this line occurs."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _is_state(node.operand):
        return f"only before {_key_of_state(node.operand)}"
    if _is_state(node):
        return f"only after {_key_of_state(node)}"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        if ast.unparse(node.left).startswith("s['values'].setdefault("):
            return "the same in every line"
        if ast.unparse(node.left).startswith("s['values'].get(") and isinstance(node.left, ast.Call):
            return f"only with {literal(node.left.args[0])} {_value(node.comparators[0])}"
        if _is_state(node.left):
            if _subject(node.comparators[0]) is not None:
                return f"{_subject(node.comparators[0]) or 'value'} only {_value(node.left)}"
            value = literal(node.comparators[0])
            if isinstance(value, str) and not isinstance(node.comparators[0], ast.Constant):
                return None
            name = _key_of_state(node.left)
            return f"only after {name}" if value is True else f"only with {name} {value!r}"
    return None


def _listed(node: ast.expr) -> str | None:
    """`s['block'] is None`, `len(v['value']) == 2`, `isinstance(v['value'], int)`, `all(x > 0 for x in v['value'])`,
    `v['metadata']['tensor'] not in s['tensors']`."""
    text = ast.unparse(node)
    if text == "isinstance(v['value'], int)":
        return "a whole number"
    if text == "isinstance(v['value'], (int, float))":
        return "a number"
    if text == "v['value']":
        return "only True"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "all":
        return _of_all(node.args[0])
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    if _is_state(left) and literal(right) is None:
        name = _key_of_state(left)
        return f"only while no {name} is under way" if isinstance(operator, ast.Is) else f"only after {name}"
    if isinstance(operator, ast.NotIn) and _subject(left) is not None and _is_state(right):
        return f"each {_subject(left) or 'value'} once only"
    if ast.unparse(left) == "len(v['value'])" and isinstance(operator, ast.Eq):
        return f"{_value(right)} numbers"
    return None


def _of_all(node: ast.expr) -> str | None:
    """`epoch > 0 for epoch in v['value']`."""
    if not isinstance(node, ast.GeneratorExp) or ast.unparse(node.generators[0].iter) != "v['value']":
        return None
    said = _words(_Items(ast.unparse(node.generators[0].target)).visit(node.elt))
    return f"each {said}" if said else None


class _Items(ast.NodeTransformer):
    """Conditions on the items of a value, rewritten as conditions on the value."""

    def __init__(self, item: str) -> None:
        self._item = item

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse("v['value']", mode="eval").body if node.id == self._item else node


def _is_state(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "s"


def _key_of_state(node: ast.expr) -> str:
    if not isinstance(node, ast.Subscript):
        return ast.unparse(node)
    name = str(literal(node.slice))
    return EVENTS.get(name) or name.replace("_", " ")


def _value(node: ast.expr) -> str:
    """A literal as Python shows it; what an earlier line set, by its name."""
    if _is_state(node):
        return f"the {_key_of_state(node)} of this log"
    if isinstance(node, ast.Subscript) and _is_state(node.value):
        key = node.slice
        of = f"the {_key_of_state(key)} of this log" if _is_state(key) else repr(literal(key))
        return f"the {_key_of_state(node.value)} of {of}"
    value = literal(node)
    return _formula(node) if isinstance(value, str) and not isinstance(node, ast.Constant) else repr(value)


def _subject(node: ast.expr) -> str | None:
    """ "" for the value itself, the item's name for one of an object or of the metadata, else None."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float") and len(node.args) == 1:
        node = node.args[0]
    if ast.unparse(node) == "v['value']":
        return ""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("v['metadata']", "v['value']"):
        name = literal(node.slice)
        return name if isinstance(name, str) else None
    return None
