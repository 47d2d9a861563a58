"""Dependency graph of the recorded steps' operators, and its critical path.

An operator depends on those that wrote its inputs, and one that writes into memory also on those that read it before.
Memory counts as a whole, so views of one tensor are not distinguished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, slots=True)
class Node:
    """A call: its phase, its operator key (None if it computes nothing), and the earlier calls that it depends on."""

    phase: str
    brick: str | None
    waits_for: frozenset[int]


class Graph:
    """Calls in topological order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._writer: dict[StorageWeakRef, int] = {}
        self._readers: dict[StorageWeakRef, set[int]] = defaultdict(set)

    def add(self, phase: str, brick: str | None, operator: Any, given: tuple[Any, Any], result: Any) -> None:
        """Add a call with positional and named arguments. Arguments without memory to compare (sparse tensors) make no
        dependency."""
        args, kwargs = given
        here, before = len(self.nodes), _memory((args, kwargs))
        writes = _written(operator, args, kwargs or {})
        waits_for = {self._writer[one] for one in before if one in self._writer}
        waits_for |= {reader for one in writes for reader in self._readers.get(one, ())}
        self.nodes.append(Node(phase, brick, frozenset(waits_for)))
        for one in before - writes:
            self._readers[one].add(here)
        for one in writes | (_memory(result) - before):
            self._writer[one] = here
            self._readers.pop(one, None)

    def longest(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Seconds by phase on the critical path, where a call takes the time of its operator; an unknown operator takes
        none. All steps are one graph, as each needs the weights of the previous one."""
        ends: list[float] = []
        came_from: list[int | None] = []
        for node in self.nodes:
            last = max(node.waits_for, key=ends.__getitem__, default=None)
            came_from.append(last)
            ends.append((0.0 if last is None else ends[last]) + seconds.get(node.brick or "", 0.0))
        phases: dict[str, float] = defaultdict(float)
        at = max(range(len(ends)), key=ends.__getitem__, default=None)
        while at is not None:
            phases[self.nodes[at].phase] += seconds.get(self.nodes[at].brick or "", 0.0)
            at = came_from[at]
        return dict(phases)


def _memory(values: Any) -> set[StorageWeakRef]:
    """Storages of all tensors among these. A weak reference keeps its number from being reused."""
    return {
        StorageWeakRef(one.untyped_storage())
        for one in tree_leaves(values)
        if isinstance(one, Tensor) and one.layout is torch.strided
    }


def _written(operator: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> set[StorageWeakRef]:
    """Storages that an operator writes to, by its schema; the schemas of collectives do not have them."""
    if operator.namespace == "c10d":
        return _memory((args, kwargs))
    parameters = operator._schema.arguments
    names = {one.name for one in parameters if one.alias_info is not None and one.alias_info.is_write}
    given = {one.name: value for one, value in zip(parameters, args, strict=False)} | dict(kwargs)
    return _memory([given[name] for name in names if name in given])
