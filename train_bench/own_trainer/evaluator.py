"""Evaluator of a user's own trainer: a program that gives the quality of what the trainer hands over, in a process of
its own that the trainer does not start. It gets a copy of the file, and prints one line of JSON: `{"accuracy": 0.93}`.

The files that its command names, such as the labels, are hidden from the trainer where the system allows it. The
evaluation of a reference is such a program, too (`run/reference_evaluation.py`); its files are its evaluation set.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files, plugins
from train_bench.core.excerpt import last_words
from train_bench.core.job import HANDED, Command, Job
from train_bench.errors import LaunchError
from train_bench.own_trainer import hidden

MOST_FILES = 10_000
LONGEST_WORDS = 200

MODULES = ("*.py", "*.pyc", "*.so", "*/__init__.py", "*/__init__.pyc", "*/__init__.*so")
"""Files of a folder that an import finds by a name without dots."""

OF_A_REFERENCE = (sys.executable, "-P", "-m", "train_bench.run.reference_evaluation")
"""Evaluation of a reference: with a file of weights it prints their metrics, without one the files of its set."""


class Evaluator:
    """Evaluator of one run. `values` are those of the run for its placeholders, `place` a folder of its own for copies
    of what is handed over. `evaluations` are what it has found, in their order. `job` is that of the run, for the
    evaluation of its reference."""

    def __init__(
        self,
        command: Command,
        values: Mapping[str, Any],
        place: Path,
        unblock: Callable[[], None],
        job: Job | None = None,
    ) -> None:
        self._values, self._place, self._unblock = values, place, unblock
        self._process: subprocess.Popen[bytes] | None = None
        self.processor_seconds = 0.0
        self._command, self._job = command, b""
        self.named = command.named_files()
        watched = self.named
        if job is not None and command.reference is not None:
            self._command = Command(argv=(*OF_A_REFERENCE, f"{{{HANDED}}}"), cwd=command.cwd)
            self._job = as_bytes(job)
            self.named = [Path(name) for name in json.loads(self._last_line(OF_A_REFERENCE))]
            code = job.reference_folder or plugins.references()[job.reference].folder
            watched = [*self.named, *sorted(Path(code).rglob("*.py"))]
        self._watched = watched
        self._digests = digests(watched)
        self._modules = modules_first(Path(command.cwd))
        self._inodes = {_inode(path.stat()) for path in _regular(self.named)}
        self.evaluations: list[dict[str, Any]] = []
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
        changed = self._changed()
        began = time.monotonic()
        try:
            metrics = self._metrics(copy)
        finally:
            copy.unlink(missing_ok=True)
        seconds = time.monotonic() - began
        found = {"metrics": metrics, "handed": digest, "bytes": size, "seconds": round(seconds, 3)}
        if changed := changed | self._changed():
            found["changed"] = sorted(changed)
        self.evaluations.append(found)
        return metrics

    def _changed(self) -> set[str]:
        """Files of the evaluator, and modules that it would import first, that are not what they were."""
        before, now = (
            self._digests | self._modules,
            digests(self._watched) | modules_first(Path(self._command.cwd)),
        )
        return {name for name in {*now, *before} if now.get(name) != before.get(name)}

    def stop(self) -> None:
        """End an evaluation that is under way, and wait for its end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def as_json(self) -> dict[str, Any]:
        """For the record of the attempt."""
        shutil.rmtree(self._place, ignore_errors=True)
        return {
            "files": self._digests,
            "hidden": self.hides and bool(self.named),
            "evaluations": self.evaluations,
        }

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
        last = self._last_line(self._command.filled({**self._values, HANDED: str(copy)}))
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

    def _last_line(self, argv: Sequence[str]) -> str:
        """Last line that the evaluator prints."""
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=self._command.cwd,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # its folders are to stay as they are
                stdin=subprocess.PIPE if self._job else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=self._unblock,
            )
        except OSError as error:
            raise LaunchError(f"the evaluator {argv[0]} could not be started: {error.strerror}.") from error
        before = _children_seconds()
        printed, said = self._process.communicate(self._job or None)
        self.processor_seconds += _children_seconds() - before
        if self._process.returncode != 0:
            why = last_words(said.decode(errors="replace"), LONGEST_WORDS)
            raise LaunchError(
                f"the evaluator ended with exit code {self._process.returncode}{f': {why}' if why else ''}"
            )
        return (printed.decode(errors="replace").strip().splitlines() or [""])[-1]


def as_bytes(job: Job) -> bytes:
    """A job as the evaluation of its reference gets it: on standard input, where the trainer cannot change it."""
    import cattrs  # takes time

    return json.dumps(cattrs.unstructure(job), default=str).encode()


def digests(paths: list[Path]) -> dict[str, str]:
    """The sha256 of each file, of those in folders as well, by its path."""
    found = {}
    for path in _regular(paths):
        with contextlib.suppress(OSError):
            found[str(path)] = files.digest(path)
    return found


def modules_first(cwd: Path) -> dict[str, str]:
    """The sha256 of each module and package that `PYTHONPATH` puts before those that are installed, by its path: a
    program may write a `numpy.py` there."""
    listed = os.environ.get("PYTHONPATH", "")
    found = {}
    for entry in listed.split(os.pathsep) if listed else ():
        for path in (path for pattern in MODULES for path in (cwd / entry).glob(pattern)):
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
