"""Evaluator of a user's own trainer: a program that gives the quality of what the trainer hands over, in a process of
its own that the trainer does not start. It gets a copy of the file, and prints one line of JSON: `{"accuracy": 0.93}`.

The files that its command names, such as the labels, are hidden from the trainer where the system allows it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.excerpt import last_words
from train_bench.core.job import HANDED, Command
from train_bench.errors import LaunchError
from train_bench.own_trainer import hidden

MOST_FILES = 10_000
LONGEST_WORDS = 200


class Evaluator:
    """Evaluator of one run. `values` are those of the run for its placeholders, `place` a folder of its own for copies
    of what is handed over. `evaluations` are what it has found, in their order."""

    def __init__(
        self, command: Command, values: Mapping[str, Any], place: Path, unblock: Callable[[], None]
    ) -> None:
        self._command, self._values, self._place, self._unblock = command, values, place, unblock
        self.named = command.named_files()
        self._digests = digests(self.named)
        self._inodes = {_inode(path.stat()) for path in _regular(self.named)}
        self.evaluations: list[dict[str, Any]] = []
        self.processor_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self.hides = hidden.can_hide(self.hidden)

    @property
    def hidden(self) -> list[Path]:
        """What the trainer is not to read: the evaluator's files, and the copies."""
        return [*self.named, self._place]

    def evaluate(self, handed: str) -> dict[str, float]:
        """Metrics of a file that the trainer has written. Raises `LaunchError` where it, or the evaluator, is none."""
        copy, digest, size = self._copied(Path(handed))
        began = time.monotonic()
        try:
            metrics = self._metrics(copy)
        finally:
            copy.unlink(missing_ok=True)
        seconds = time.monotonic() - began
        found = {"metrics": metrics, "handed": digest, "bytes": size, "seconds": round(seconds, 3)}
        if (now := digests(self.named)) != self._digests:
            found["changed"] = sorted(
                name for name in {*now, *self._digests} if now.get(name) != self._digests.get(name)
            )
        self.evaluations.append(found)
        return metrics

    def stop(self) -> None:
        """End an evaluation that is under way, and remove the copies."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def as_json(self) -> dict[str, Any]:
        """For the record of the attempt."""
        shutil.rmtree(self._place, ignore_errors=True)
        return {"files": self._digests, "hidden": self.hides, "evaluations": self.evaluations}

    def _copied(self, handed: Path) -> tuple[Path, str, int]:
        """A copy out of the trainer's reach. What leads to a file of the evaluator itself is refused: the trainer
        cannot read it, and this process could."""
        copy = self._place / handed.name
        seen = hashlib.sha256()
        try:
            with files.opened(handed) as source:
                if _inode(os.fstat(source.fileno())) in self._inodes:
                    raise LaunchError(
                        f"{handed} leads to a file of the evaluator; hand over what the program has written."
                    )
                with copy.open("wb") as target:
                    while block := source.read(2**20):
                        seen.update(block)
                        target.write(block)
                    size = target.tell()
        except OSError as error:
            raise LaunchError(
                f"{handed} was handed over and cannot be read ({error.strerror or error}); write the file first, and "
                "give its whole path."
            ) from error
        if seen.hexdigest() in self._digests.values():
            raise LaunchError(
                f"{handed} is a copy of a file of the evaluator; hand over what the program has found."
            )
        return copy, seen.hexdigest(), size

    def _metrics(self, copy: Path) -> dict[str, float]:
        argv = self._command.filled({**self._values, HANDED: str(copy)})
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=self._command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=self._unblock,
            )
        except OSError as error:
            raise LaunchError(f"the evaluator {argv[0]} could not be started: {error.strerror}.") from error
        before = _children_seconds()
        printed, said = self._process.communicate()
        self.processor_seconds += _children_seconds() - before
        if self._process.returncode != 0:
            why = last_words(said.decode(errors="replace"), LONGEST_WORDS)
            raise LaunchError(
                f"the evaluator ended with exit code {self._process.returncode}{f': {why}' if why else ''}"
            )
        last = (printed.decode(errors="replace").strip().splitlines() or [""])[-1]
        try:
            found = json.loads(last, parse_int=files.whole_number)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not found or not all(map(_is_number, found.values())):
            raise LaunchError(
                f"the evaluator printed {last[:80]!r}; its last line has to be a JSON object of its metrics, such as "
                '{"accuracy": 0.93}.'
            )
        return {name: float(value) for name, value in found.items()}


def digests(paths: list[Path]) -> dict[str, str]:
    """The sha256 of each file, of those in folders as well, by its path."""
    found = {}
    for path in _regular(paths):
        with contextlib.suppress(OSError):
            found[str(path)] = files.digest(path)
    return found


def _regular(paths: list[Path]) -> Iterator[Path]:
    count = 0
    for path in paths:
        for one in sorted(path.rglob("*")) if path.is_dir() else (path,):
            if one.is_file():
                count += 1
                if count > MOST_FILES:
                    raise LaunchError(
                        f"The command of the evaluator names more than {MOST_FILES} files, in {path}; name the files "
                        "that it needs."
                    )
                yield one


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _children_seconds() -> float:
    taken = os.times()
    return taken.children_user + taken.children_system


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
