"""Where the logs of an entry lie, and what the folders around them say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench import papers
from train_bench.errors import LogError, RequestError
from train_bench.rules import ruleset

ROUND_FOLDER = re.compile(r"(?:training_results_)?v?(\d+\.\d+)(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The result files of one entry, and the plan of the campaign that left them (empty for logs that came
    alone). The names are those of the folders, where logs lie as submissions do
    (`SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt`). `alone` is a single log, asked for by itself."""

    folder: Path
    files: tuple[Path, ...]
    plan: Mapping[str, Any]
    ruleset: str
    submitter: str | None
    system: str | None
    benchmark: str | None
    alone: bool = False

    @property
    def system_file(self) -> Path | None:
        """The description of the system, which may not be there."""
        if self.system is None:
            return None
        return self.folder.parents[2] / "systems" / f"{self.system}.json"


def find(path: Path, asked: str | None) -> Iterator[Place]:
    """Every entry below `path`, which may be a log, a folder of logs or any folder above such.

    The ruleset is that of a campaign's plan, else the one that was `asked` for, else the one that a folder
    above is named after (`v1.1`). Raises `RequestError` where nothing says it.
    """
    path = path.absolute()
    if path.is_file():
        yield _place(path.parent, (path,), asked, alone=True)
        return
    if not path.is_dir():
        raise RequestError(f"There is no file or folder {path}; give a log, a campaign or a tree of results.")
    unreadable: list[OSError] = []
    empty = True
    for folder, below, names in os.walk(path, onerror=unreadable.append):
        below.sort()
        files = tuple(Path(folder, name) for name in sorted(names) if re.fullmatch(r"result_.*\.txt", name))
        if "plan.json" in names:
            below.clear()  # what lies in a campaign's folder beside its results is no entry
        if files:
            empty = False
            yield _place(Path(folder), files, asked, alone=False)
    if unreadable:
        raise LogError(f"{unreadable[0].filename} cannot be read: {unreadable[0].strerror}.")
    if empty:
        raise LogError(" ".join((f"{path} holds no result_*.txt yet.", *badly_ended(path))))


def badly_ended(folder: Path) -> tuple[str, ...]:
    """Which jobs of a batch system that a campaign was submitted to ended badly, and how."""
    path = folder / "batch.json"
    if not path.exists():
        return ()
    told = papers.read_json(path)
    tasks = told.get("tasks") if isinstance(told, dict) else None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise LogError(f"{path} does not say what became of its jobs.")
    return tuple(
        f"Job {task.get('name')} {task.get('how')}." for task in tasks if task.get("good") is not True
    )


def _place(folder: Path, files: tuple[Path, ...], asked: str | None, *, alone: bool) -> Place:
    parts = folder.parts
    submitted = len(parts) > 4 and parts[-3] == "results"
    plan = _plan(folder)
    return Place(
        folder=folder,
        files=files,
        plan=plan,
        ruleset=_ruleset(folder, asked, plan.get("ruleset")),
        submitter=parts[-4] if submitted else None,
        system=parts[-2] if submitted else None,
        benchmark=parts[-1] if submitted else None,
        alone=alone,
    )


def _plan(folder: Path) -> dict[str, Any]:
    if not os.path.lexists(folder / "plan.json"):
        return {}
    plan = papers.read_json(folder / "plan.json")
    if not isinstance(plan, dict) or not isinstance(plan.get("ruleset"), str):
        raise LogError(f"{folder / 'plan.json'} is not a plan: it names no ruleset.")
    return plan


def _ruleset(folder: Path, asked: str | None, planned: str | None) -> str:
    asked = ruleset.full_name(asked) if asked is not None else None
    if planned is not None:
        if asked not in (None, planned):
            raise RequestError(
                f"The plan in {folder} names the ruleset {planned}; --ruleset {asked} contradicts it."
            )
        return ruleset.full_name(planned)
    if asked is not None:
        return asked
    for part in reversed(folder.parts):
        match = ROUND_FOLDER.fullmatch(part)
        name = f"training-{match[1]}{match[2] or '.0'}" if match else None
        if name in ruleset.names():
            return str(name)
    raise RequestError(
        f"Nothing says which rules {folder} was run under (no plan.json, no folder named like v1.1); add "
        f"--ruleset, one of {', '.join(ruleset.names())}."
    )
