"""Training rounds of a fleet: each node by itself, with repeats; then pairs; then all together.

Nodes may become unreachable on the way: their observations stay, and the others go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from train_bench.core.escape import plain
from train_bench.core.excerpt import tail
from train_bench.core.job import Device
from train_bench.errors import TrainBenchError
from train_bench.fleet.link import GRACE_SECONDS, Link, NodeLost, Step
from train_bench.fleet.node import STEP
from train_bench.fleet.observations import (
    Node,
    Together,
    Trained,
    accelerators_of,
    load_of,
    read_training,
    type_of,
    versions_of,
)
from train_bench.rules.ruleset import BenchmarkRules

CLOCK_REQUESTS = 9

SECONDS_OF_SILENCE = 60.0
"""Heartbeat timeout of a training node; it sends one every two seconds."""

TAIL_CHARACTERS = 300
"""Size of the stderr tail of a failed training."""

PAGE = "report.html"
"""Page of each run, 2 MB, which is removed; `train-bench report` makes it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """Load of all accelerators of a node: device and precision of the job, and seconds of matrix products."""

    device: str
    precision: str
    seconds: float


class Trainings(Protocol):
    """Training command: the words after `train-bench`, one list for each participating node."""

    def alone(self, folder: Path) -> list[str]:
        """Command on one node, in a new folder."""

    def together(self, addresses: Sequence[str], folder: Path) -> list[list[str]]:
        """Commands on several nodes, the first of which leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Connection settings of the nodes.

    command       runs the program on a node, whose name `{node}` stands for, or on all, named by `{nodes}`
    program       the program: `train_bench.fleet.node`
    at_once       nodes that train at the same time
    repeats       trainings of each by itself
    start_limit   seconds until the first answer of a node
    silence       heartbeat timeout in seconds while it trains
    folder        of all output, shared by all nodes
    """

    command: Sequence[str]
    program: Sequence[str]
    at_once: int
    repeats: int
    start_limit: float
    folder: Path
    silence: float = SECONDS_OF_SILENCE


class Fleet:
    """Connected nodes of a fleet; a context that ends all their processes."""

    def __init__(
        self, nodes: Sequence[Node], ways: Ways, rules: BenchmarkRules, tell: Callable[[str], None]
    ) -> None:
        self.nodes = nodes
        self._ways, self._rules, self._tell = ways, rules, tell
        self._links: dict[str, Link] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Fleet:
        try:
            self._reach()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load(self, test: LoadTest) -> None:
        """Load the accelerators of every node, as many nodes at once as train at once. With device=auto, nodes without
        one are left alone where others have some."""
        nodes = [node for node in self._reached() if not node.trouble]
        if test.device == Device.auto.value and any(node.accelerators for node in self.nodes):
            nodes = [node for node in nodes if node.accelerators]
        for batch in _batches(nodes, self._ways.at_once):
            self._tell(f"load: {', '.join(node.name for node in batch)}")
            for node in batch:
                folder = self._ways.folder / "output" / node.name
                self._links[node.name].send(
                    {"ask": "load", **asdict(test), "folder": str(folder), "name": "load"}
                )
            for node in batch:
                self._read_load(node)

    def _read_load(self, node: Node) -> None:
        try:
            answer = self._links[node.name].receive("ended", self._ways.silence)
        except NodeLost as error:
            self._lose(node, f"became unreachable under load: {error}.")
            return
        message, why = answer.get("message"), None
        try:
            node.load = load_of(answer.get("numbers"))  # of the phases before the one that failed, too
        except ValueError as error:
            why = str(error)
        if answer.get("ended") != 0:
            why = plain(tail(message, TAIL_CHARACTERS)) if isinstance(message, str) else "?"
        if why is not None:
            node.trouble.append(f"did not carry out its load test: {why.rstrip('.')}.")

    def alone(self, trainings: Trainings) -> None:
        """Train every node by itself, all of them in each repeat, so that disturbances over time affect all alike."""
        for repeat in range(1, self._ways.repeats + 1):
            self._each(trainings, self.nodes, f"training {repeat} of {self._ways.repeats}")

    def again(self, trainings: Trainings, slow: Sequence[tuple[str, ...]]) -> None:
        """Repeat the slow nodes by themselves: interference may be over."""
        self._each(trainings, [node for node in self.nodes if (node.name,) in slow], "repeat of slow nodes")

    def together(self, trainings: Trainings, names: Sequence[str]) -> list[Together]:
        """Train neighbours in the order of `names`, the last with the first; then all."""
        done = [*self._pairs(trainings, _ring(names), "pairs")]
        if len(names) > 2:
            self._tell("all together")
            done += self._side_by_side(trainings, [tuple(names)], "all")
        return done

    def together_again(
        self, trainings: Trainings, slow: Sequence[tuple[str, ...]], done: Sequence[Together], kind: str
    ) -> list[Together]:
        """Repeat slow groups in a folder `kind` and return the shorter of both trainings."""
        anew = {one.nodes: one for one in self._pairs(trainings, slow, kind)}
        return [_better(one, anew.get(one.nodes, one)) for one in done]

    def _each(self, trainings: Trainings, nodes: Sequence[Node], what: str) -> None:
        well = [node for node in nodes if node.name in self._links and not node.trouble]
        for batch in _batches(well, self._ways.at_once):
            self._tell(f"{what}: {', '.join(node.name for node in batch)}")
            folders = {
                node.name: self._ways.folder / f"alone_{len(node.trained) + 1}" / node.name for node in batch
            }
            for node in batch:
                self._start(node, trainings.alone(folders[node.name]))
            for node in batch:
                self._read(node, folders[node.name])

    def _pairs(self, trainings: Trainings, pairs: Sequence[tuple[str, ...]], kind: str) -> Iterator[Together]:
        for batch in _disjoint(pairs, max(1, self._ways.at_once // 2)):
            self._tell(f"{kind.replace('_', ' ')}: {'; '.join(' and '.join(pair) for pair in batch)}")
            yield from self._side_by_side(trainings, batch, kind)

    def _reach(self) -> None:
        began = time.monotonic()
        if any("{nodes}" in word for word in self._ways.command):
            self._connect_all()
        else:
            self._connect_each()
        for node in self._reached():
            try:
                facts = self._links[node.name].receive("facts", self._ways.start_limit, since=began)["facts"]
                if not isinstance(facts, Mapping):
                    raise NodeLost("its answer has no facts of the machine")
                node.type, node.versions = type_of(facts), versions_of(facts)
                node.accelerators = len(accelerators_of(facts))
                node.ahead, node.ahead_error = _ahead(self._links[node.name], self._ways.start_limit)
            except NodeLost as error:
                self._lose(node, f"never answered: {error}.", grace=0.0)

    def _connect_each(self) -> None:
        """A command for each node."""
        for node in self.nodes:
            argv = [word.replace("{node}", node.name) for word in self._ways.command]
            try:
                link = Link((*argv, *self._ways.program), self._ways.folder / "links" / f"{node.name}.stderr")
            except NodeLost as error:
                node.trouble.append(f"is unreachable: {error}.")
                continue
            self._stack.callback(link.close)
            self._links[node.name] = link
        for link in self._links.values():
            link.listen()

    def _connect_all(self) -> None:
        """One command for all nodes."""
        names = [node.name for node in self.nodes]
        argv = [word.replace("{nodes}", ",".join(names)) for word in self._ways.command]
        try:
            step = Step(
                (*argv, *self._ways.program, STEP), self._ways.folder / "links" / "step.stderr", names
            )
        except NodeLost as error:
            for node in self.nodes:
                node.trouble.append(f"is unreachable: {error}.")
            return
        self._stack.callback(step.close, min(GRACE_SECONDS, self._ways.silence))
        self._links.update(step.links)
        step.listen()

    def _reached(self) -> list[Node]:
        return [node for node in self.nodes if node.name in self._links]

    def _lose(self, node: Node, how: str, grace: float = GRACE_SECONDS) -> None:
        node.trouble.append(how)
        self._links.pop(node.name).close(min(grace, self._ways.silence))

    def _start(self, node: Node, words: Sequence[str]) -> None:
        request = {
            "ask": "train",
            "words": list(words),
            "folder": str(self._ways.folder / "output" / node.name),
            "name": f"training_{len(node.trained)}",
        }
        self._links[node.name].send(request)

    def _end_of(self, node: Node) -> str | None:
        """Wait for the end of a training; returns the command's failure, if it reports one. Raises `NodeLost`."""
        answer = self._links[node.name].receive("ended", self._ways.silence)
        output = answer.get("message")
        return (
            plain(tail(output, TAIL_CHARACTERS))
            if isinstance(output, str) and answer.get("ended") != 0
            else None
        )

    def _read(self, node: Node, folder: Path) -> None:
        try:
            output = self._end_of(node)
        except NodeLost as error:
            self._lose(node, f"became unreachable during its training: {error}.")
            return
        (folder / PAGE).unlink(missing_ok=True)
        try:
            node.trained.append(read_training(folder, self._rules))
        except TrainBenchError as error:
            node.trouble.append(f"did not train: {_failure(error, output)}")

    def _side_by_side(
        self, trainings: Trainings, groups: Sequence[tuple[str, ...]], kind: str
    ) -> Iterator[Together]:
        by_name = {node.name: node for node in self.nodes}
        started = []
        for group in groups:
            nodes = [by_name[name] for name in group]
            if any(node.name not in self._links for node in nodes):
                continue
            folder = self._ways.folder / kind / ("+".join(group) if len(group) == 2 else "")
            try:
                words = trainings.together([node.address for node in nodes], folder)
            except TrainBenchError as error:  # the rules of a benchmark, at a batch for so many
                yield Together(nodes=group, trained=None, trouble=str(error))
                continue
            for node, own in zip(nodes, words, strict=True):
                self._start(node, own)
            started.append((group, nodes, folder))
        for group, nodes, folder in started:
            yield self._ended(group, nodes, folder)

    def _ended(self, group: tuple[str, ...], nodes: Sequence[Node], folder: Path) -> Together:
        """The first node leads: when it is done, the others have no more work."""
        output: list[str | None] = []
        for node in nodes:
            try:
                output.append(self._end_of(node))
            except NodeLost as error:
                self._lose(
                    node, f"became unreachable during its training with {_others(group, node)}: {error}."
                )
            for other in nodes[1:] if node is nodes[0] else ():
                self._links[other.name].send({"ask": "stop"})
        if any(node.name not in self._links for node in nodes):
            return Together(nodes=group, trained=None, trouble=None)
        (folder / PAGE).unlink(missing_ok=True)
        try:
            trained: Trained | None = read_training(folder, self._rules)
        except TrainBenchError as error:
            return Together(nodes=group, trained=None, trouble=_failure(error, output[0]))
        return Together(nodes=group, trained=trained, trouble=None)


def _better(one: Together, again: Together) -> Together:
    """The faster training, with the other's outcome if that differs; a failed training takes precedence."""
    if one.trained is None or again.trained is None:
        return again if again.trouble else one
    quicker = min(one.trained, again.trained, key=lambda done: done.pace)
    otherwise = one.otherwise
    for done in (one.trained, again.trained):
        if done.outcome != quicker.outcome:
            otherwise = done.outcome
    return replace(one, trained=quicker, otherwise=otherwise)


def _others(group: Sequence[str], node: Node) -> str:
    return ", ".join(name for name in group if name != node.name)


def _failure(error: TrainBenchError, output: str | None) -> str:
    """Failure of an unreadable training, with the stderr tail of its command."""
    parts = [str(error), f"its output ends with: {output}" if output else ""]
    return "; ".join(part.rstrip(".") for part in parts if part) + "."


def _ahead(link: Link, limit: float) -> tuple[float, float]:
    """Clock offset and its error: half of the shortest round trip."""
    answers = []
    for _ in range(CLOCK_REQUESTS):
        before = time.time()
        answer = link.ask({"ask": "clock"}, "clock", limit)["clock"]
        after = time.time()
        if not isinstance(answer, (int, float)) or isinstance(answer, bool) or not abs(answer) < 1e12:
            raise NodeLost("its answer has no valid time")
        answers.append((after - before, answer - (before + after) / 2))
    took, ahead = min(answers)
    return ahead, took / 2


def _batches(nodes: Sequence[Node], size: int) -> Iterator[Sequence[Node]]:
    for first in range(0, len(nodes), size):
        yield nodes[first : first + size]


def _ring(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Ring of pairs: each with the next; two nodes make one pair."""
    pairs = [(names[at], names[(at + 1) % len(names)]) for at in range(len(names))]
    return [*pairs[:1]] if len(names) == 2 else [*pairs] if len(names) > 2 else []


def _disjoint(pairs: Sequence[tuple[str, ...]], size: int) -> Iterator[list[tuple[str, ...]]]:
    """All pairs, in batches of at most `size` without a common node."""
    left = list(pairs)
    while left:
        batch: list[tuple[str, ...]] = []
        for pair in left:
            if len(batch) < size and not {*pair} & {name for other in batch for name in other}:
                batch.append(pair)
        left = [pair for pair in left if pair not in batch]
        yield batch


def program() -> list[str]:
    """Program of a node, with this interpreter."""
    return [sys.executable, "-P", "-m", "train_bench.fleet.node"]
