"""Monte-Carlo tree search of one game with objects, after the equations in `references/minigo/search.py`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.references.slow_go import SlowGo

Answer = tuple[list[float], float]


def single(value: float) -> float:
    """Priors are kept in single precision."""
    return float(np.float32(value))


class Node:
    def __init__(self, position: SlowGo, above: Node | None = None, action: int = -1) -> None:
        self.position, self.above, self.action = position, above, action
        self.children: dict[int, Node] = {}
        self.prior: dict[int, float] = {}
        self.tries: dict[int, int] = {}
        self.value: dict[int, float] = {}
        self.visits = 0
        self.waits = 0

    def way(self) -> list[tuple[Node, int]]:
        """Nodes and moves that lead here."""
        if self.above is None:
            return []
        return [*self.above.way(), (self.above, self.action)]

    def best(self) -> int:
        side, count = self.position.to_play, self.visits
        u = 2 * (math.log((1 + count + 19652) / 19652) + 1.25) * math.sqrt(max(1, count - 1))
        scores = {
            action: self.value[action] / (1 + self.tries[action]) * side
            + u * self.prior[action] / (1 + self.tries[action])
            for action in self.prior
        }
        return max(scores, key=lambda action: scores[action])


def copied(position: SlowGo) -> SlowGo:
    other = SlowGo(position.size)
    other.stones, other.earlier, other.history = (
        dict(position.stones),
        set(position.earlier),
        list(position.history),
    )
    other.to_play, other.passes, other.ply = position.to_play, position.passes, position.ply
    return other


class SlowSearch:
    """A tree that grows from one position. `ask` maps a position to probabilities and a value from Black's
    side."""

    def __init__(
        self,
        position: SlowGo,
        ask: Callable[[SlowGo], Answer],
        *,
        komi: float,
        losses: int,
        penalty: float,
    ) -> None:
        self.root = Node(copied(position))
        self.total = 0.0
        self.ask, self.komi, self.losses, self.penalty = ask, komi, losses, penalty

    def grow(self, goal: int, noise: list[float] | None = None, share: float = 0.0) -> None:
        while self.root.visits < goal:
            fresh = not self.root.prior
            for leaf in self.leaves(goal):
                self.take_in(leaf)
            if fresh and noise is not None:
                for action, drawn in zip(self.root.prior, noise, strict=True):
                    self.root.prior[action] = single((1 - share) * self.root.prior[action] + share * drawn)

    def leaves(self, goal: int) -> list[Node]:
        """A batch. A node that waits already is met once more, and is another loss."""
        found: list[Node] = []
        met = 0
        while met < self.losses and self.root.visits < goal:
            node = self.root
            while node.prior and not node.position.over():
                action = node.best()
                if action not in node.children:
                    after = copied(node.position)
                    after.play(divmod(action, after.size) if action < after.size**2 else None)
                    node.children[action] = Node(after, node, action)
                node = node.children[action]
            if node.position.over():
                margin = node.position.area() - self.komi
                self.back_up(node, float((margin > 0) - (margin < 0)))
                continue
            met += 1
            node.waits += 1
            for above, action in node.way():
                above.value[action] -= above.position.to_play
            if node not in found:
                found.append(node)
            if node is self.root:
                break
        return found

    def take_in(self, node: Node) -> None:
        probabilities, value = self.ask(node.position)
        size = node.position.size
        legal = [row * size + column for row, column in node.position.legal()] + [size**2]
        total = sum(probabilities[action] for action in legal)
        begin = min(1.0, max(-1.0, value - self.penalty * node.position.to_play))
        for action in legal:
            node.prior[action] = single(probabilities[action] / total)
            node.tries[action], node.value[action] = 0, begin
        for above, action in node.way():
            above.value[action] += node.waits * above.position.to_play
        node.waits = 0
        self.back_up(node, value)

    def back_up(self, node: Node, value: float) -> None:
        self.total += value
        node.visits += 1
        for above, action in node.way():
            above.visits += 1
            above.tries[action] += 1
            above.value[action] += value

    def quality(self) -> float:
        """Of the root, for who is to play."""
        return self.total / (1 + self.root.visits) * self.root.position.to_play
