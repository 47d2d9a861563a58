"""Ladder of starts: the same first answer of the same weights, from a process that has nothing to one that has all.

L0  a new process, weights on disk, not in the page cache
L1  a new process, weights in the page cache
L2  a new process, weights mapped from memory that processes share
L3  a process with its model, into which the weights are mapped
L4  a process with the weights
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.errors import LaunchError
from train_bench.startup import page_cache
from train_bench.startup.started import StartedProcess, start
from train_bench.startup.weight_store import Tier, fetch

RETAINED = {
    "L0": "nothing; weights on disk, dropped from the page cache",
    "L1": "weights in the page cache",
    "L2": "weights in shared memory, mapped",
    "L3": "the process with its model; weights in shared memory, mapped",
    "L4": "the process with its weights",
}
"""State before a start of each level, besides programs, libraries and data."""

LEVELS = tuple(RETAINED)
STAGES = {
    "process_and_imports": ("started", "imported"),
    "build": ("imported", "built"),
    "weights": ("built", "loaded"),
    "first_inference": ("loaded", "answered"),
}
"""Stages by the times at which they begin and end."""

LARGE_BYTES = 100 * 10**6
"""Weights from which on the time of loading is proportional to them."""

ORDERED = ("L0", "L1", "L3", "L4")
"""Levels of which each has to take no longer than the one before it: in L2 pages are mapped that L1 copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model whose starts are measured.

    described  the model, for `models.from_description`
    weights    files with its weights, with the sha256 of each
    answer     the right answer
    """

    name: str
    described: Mapping[str, Any]
    weights: Sequence[tuple[Path, str]]
    answer: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path, _ in self.weights)

    def refuse_same_answer(self, start: Mapping[str, Any]) -> None:
        """Raise `LaunchError` if the reply with start weights has the right answer."""
        if start["answer"] == self.answer:
            raise LaunchError(
                f"The start weights of {self.name} give the same first answer as its weights, so that an answer does "
                f"not tell right from wrong; measure another benchmark, or other weights."
            )


def measure(
    subject: Subject,
    levels: Sequence[str],
    rounds: int,
    *,
    disk: Tier,
    memory: Tier,
    done: Callable[[int], None] = lambda number: None,
) -> dict[str, Any]:
    """Start the subject at each of the levels in turn, round by round; `done` is called after each. Both tiers have its
    weights afterwards. Raises `LaunchError` where a state cannot be reached or a process dies."""
    digests = [digest for _, digest in subject.weights]
    for path, digest in subject.weights:
        disk.admit(path, digest)
    with contextlib.ExitStack() as stack:
        on_disk = [stack.enter_context(disk.lease(digest)) for digest in digests]
        in_memory = [stack.enter_context(fetch(digest, (memory, disk))) for digest in digests]
        ladder = _Ladder(subject, on_disk, in_memory, disk.folder)
        kept = stack.enter_context(ladder.keep_process()) if {"L3", "L4"} & {*levels} else None
        measured = []
        for number in range(rounds):
            measured.append({level: ladder.start(level, kept) for level in LEVELS if level in levels})
            done(number + 1)
    return {
        "name": subject.name,
        "bytes": subject.size,
        "answer": subject.answer,
        "levels": [_level(level, measured) for level in LEVELS if level in levels],
        "ordered_rounds": sum(map(_is_ordered, measured)),
        "rounds": measured,
    }


class _Ladder:
    def __init__(
        self, subject: Subject, on_disk: Sequence[Path], in_memory: Sequence[Path], folder: Path
    ) -> None:
        self._subject, self._on_disk, self._in_memory, self._folder = subject, on_disk, in_memory, folder

    @contextlib.contextmanager
    def keep_process(self) -> Iterator[StartedProcess]:
        """The process of L3 and L4, whose start weights give another answer."""
        with self._started({"load": None}) as process:
            self._subject.refuse_same_answer(process.first)
            yield process

    def start(self, level: str, kept: StartedProcess | None) -> dict[str, Any]:
        """One start: its `seconds`, those that it `waited` for a processor, its `stages`, whether its answer is
        `right`, and the `resident` share of the weights before it."""
        if level in ("L0", "L1", "L2"):
            prepare = page_cache.make_cold if level == "L0" else page_cache.make_warm
            paths = self._in_memory if level == "L2" else self._on_disk
            resident = max(map(prepare, paths)) if level == "L0" else min(map(prepare, paths))
            request = {"load": "map" if level == "L2" else "copy", "paths": list(map(str, paths))}
            with self._started(request) as process:
                return self._result(process.first, resident)
        assert kept is not None
        resident = min(map(page_cache.make_warm, self._in_memory))
        mapping = {"load": "map", "paths": list(map(str, self._in_memory))}
        if level == "L3":
            self._subject.refuse_same_answer(kept.ask({"load": "start"}))
            return self._result(kept.ask(mapping), resident)
        kept.ask(mapping)
        return self._result(kept.ask({"load": None}), resident)

    @contextlib.contextmanager
    def _started(self, request: Mapping[str, Any]) -> Iterator[StartedProcess]:
        with start({**self._subject.described, "request": request}, self._folder) as process:
            yield process

    def _result(self, reply: Mapping[str, Any], resident: float) -> dict[str, Any]:
        times = reply["times"]
        stages = {
            name: (times[end] - times[begin]) / 1e9
            for name, (begin, end) in STAGES.items()
            if begin in times and end in times
        }
        if "imported" not in times:
            stages["weights"] = (times["loaded"] - times["started"]) / 1e9
        return {
            "seconds": (times["answered"] - times["started"]) / 1e9,
            "waited": reply["waited"],
            "stages": {name: stages.get(name, 0.0) for name in STAGES},
            "right": reply["answer"] == self._subject.answer,
            "answer": reply["answer"],
            "resident": resident,
            "bytes": reply["sizes"],
        }


def _level(level: str, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A level over all rounds: medians of seconds and stages, the extremes of what was resident."""
    starts = [each[level] for each in measured]
    resident = [one["resident"] for one in starts]
    waited = [one["waited"] for one in starts if one["waited"] is not None]
    return {
        "level": level,
        "retained": RETAINED[level],
        "seconds": statistics.median(one["seconds"] for one in starts),
        "waited": statistics.median(waited) if waited else None,
        "stages": {name: statistics.median(one["stages"][name] for one in starts) for name in STAGES},
        "right": sum(one["right"] for one in starts),
        "resident": {"least": min(resident), "most": max(resident)},
        "bytes": starts[-1]["bytes"],
    }


def _is_ordered(each: Mapping[str, Any]) -> bool:
    seconds = [each[level]["seconds"] for level in ORDERED if level in each]
    return all(before >= after for before, after in itertools.pairwise(seconds))


def weights_matter(models: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Share of weights in the cold start of the largest measured model: `share`, `bytes_per_second` at L0,
    `seconds_without_weights`; and the sizes from which weights are a tenth and half of it, at that rate, None for
    weights below `LARGE_BYTES`, whose time is not that of reading. None without both L0 and L4."""
    largest = max(models, key=lambda model: model["bytes"])
    levels = {level["level"]: level for level in largest["levels"]}
    if "L0" not in levels or "L4" not in levels:
        return None
    cold, kept = levels["L0"], levels["L4"]
    later = cold["stages"]["first_inference"] - kept["stages"]["first_inference"]
    loading = max(cold["stages"]["weights"] + max(later, 0.0), 1e-9)
    without = max(cold["seconds"] - loading, 0.0)
    rate, large = largest["bytes"] / loading, largest["bytes"] >= LARGE_BYTES
    return {
        "bytes": largest["bytes"],
        "bytes_per_second": rate,
        "seconds_without_weights": without,
        "share": loading / cold["seconds"],
        "tenth_bytes": rate * without / 9 if large else None,
        "half_bytes": rate * without if large else None,
    }
