"""Numbers that a rule expects of a value: `v['value'] * 1152 == s['global_batch_size'] * 8e-5` -> one of them."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Any

Number = int | float


def expected_numbers(rule: str, state: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[Number, ...]:
    """The numbers that satisfy the equalities of a rule, in the state of its line; empty where a rule has none, or is
    not linear in the value. `value` is the line's value with its metadata, `v` in the rule. An equality of whole
    numbers gives whole numbers."""
    try:
        return tuple(_roots(ast.parse(rule.strip(), mode="eval").body, dict(state), value))
    except Exception:  # the rule cannot take this state
        return ()


def _roots(node: ast.expr, state: dict[str, Any], value: Mapping[str, Any]) -> Iterator[Number]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        for part in node.values:
            yield from _roots(part, state, value)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, operator, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(operator, ast.Eq):
            yield from _root(left, right, state, value)
        elif isinstance(operator, ast.Lt):
            distance = _difference(left)
            if distance is not None:
                yield from _root(distance.left, distance.right, state, value)


def _difference(node: ast.expr) -> ast.BinOp | None:
    """The difference in `abs(value - expected)`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "abs":
        return None
    inner = node.args[0]
    return inner if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) else None


def _root(
    left: ast.expr, right: ast.expr, state: dict[str, Any], value: Mapping[str, Any]
) -> Iterator[Number]:
    sides = [_evaluate(side, state, {"v": value}) for side in (left, right)]
    if not all(type(side) in (int, float) for side in sides):
        return
    at = [
        _evaluate(left, state, {"v": {**value, "value": x}})
        - _evaluate(right, state, {"v": {**value, "value": x}})
        for x in (0, 1)
    ]
    slope, texts = at[1] - at[0], [ast.unparse(left), ast.unparse(right)]
    if slope:
        whole = any(type(side) is int and "v['" not in text for side, text in zip(sides, texts, strict=True))
        root = -at[0] / slope
    else:  # it is about the metadata: the side without them
        other = next((side for side, text in zip(sides, texts, strict=True) if "v['" not in text), None)
        if other is None:
            return
        whole, root = type(other) is int, other
    if math.isfinite(root):
        yield round(root) if whole and root == round(root) else root


def _evaluate(node: ast.expr, state: dict[str, Any], scope: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "rule", "eval"), state, scope)
