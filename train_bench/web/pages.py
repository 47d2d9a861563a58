"""The pages of results: history, campaigns also while they run, review.

What makes a page is imported when one is asked for, so that the server is there at once.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.campaign import catalogue
from train_bench.core import files
from train_bench.errors import TrainBenchError
from train_bench.judge.locate import REPEATED, RESULT
from train_bench.judge.state import state_of
from train_bench.judge.tree import Judged
from train_bench.plan import discover

ADDRESS = re.compile(r"/campaign/[0-9a-f]{16}|/beside(?:/[0-9a-f]{16}){2,30}")
"""Pages of a result, and of several beside each other."""

MOST_RESULTS = 500
"""Results of a store that the first page lists, the latest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """What verbs of their own make: the page of a store's history, with the addresses of its campaigns; the object of
    the review of a folder, and its judgements, by the rules of a round."""

    history: Callable[[Path, Mapping[str, str]], str]
    review: Callable[[Path, str | None], Mapping[str, Any]]
    judged: Callable[[Path, str | None], Judged]


class Pages:
    """Served pages. Folders are found again for each request and named by digests: no address names a file."""

    def __init__(self, folder: Path | None, store: Path, ruleset: str | None, makers: Makers) -> None:
        self._folder, self._store, self._ruleset, self._makers = folder, store, ruleset, makers

    def __call__(self, path: str) -> str | None:
        """The page of a path, None where there is none."""
        if path == "/":
            return self._list()
        if path == "/history" and self._store.exists():
            pages = {str(folder): f"/campaign/{name}" for name, folder in self._named().items()}
            return self._makers.history(self._store, pages)
        if path == "/review" and self._folder is not None:
            from train_bench.report.page import write

            content = self._makers.review(self._folder, self._ruleset)
            return write.review_page(content, [self._folder], served=True)
        match = ADDRESS.fullmatch(path)
        if match is None:
            return None
        there, names = self._named(), re.findall(r"[0-9a-f]{16}", path)
        folders = [there[name] for name in names if name in there]
        if len(folders) < len(names) or len(set(names)) < len(names) or not all(map(_is_result, folders)):
            return None
        return self._campaign(folders[0]) if len(folders) == 1 else self._report(folders)

    def _named(self) -> dict[str, Path]:
        folders = _folders_below(self._folder) if self._folder is not None else folders_of(self._store)
        return {hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]: folder for folder in folders}

    def _list(self) -> str:
        from train_bench.report.page import write

        rows = sorted(self._rows(), key=lambda row: row["date"], reverse=True)
        return write.list_page(
            rows[:MOST_RESULTS],
            total=len(rows),
            folder=self._folder,
            store=self._store if self._store.exists() else None,
            answered=self._answered(),
        )

    def _answered(self) -> list[str]:
        """Folders with the tests of served weights, which keep no verdict."""
        return [] if self._folder is None else list(map(self._shown, catalogue.find_served(self._folder)))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Each result with what the store or its own files say; nothing is judged."""
        stored = _results_of(self._store) if self._store.exists() else {}
        for name, folder in self._named().items():
            row: dict[str, Any] = {"name": name, "path": str(folder), "shown": self._shown(folder)}
            row |= {
                "state": None,
                "runs": None,
                "score_minutes": None,
                "date": "",
                "benchmark": None,
            }
            if str(folder) in stored:
                yield row | stored[str(folder)]
                continue
            listed = catalogue.describe_campaign(folder)
            if listed is not None:
                row |= {
                    "state": listed.state,
                    "runs": f"{listed.finished} of {listed.runs} runs" if listed.valid is None else None,
                    "score_minutes": listed.score_minutes,
                    "date": listed.created[:16].replace("T", " "),
                    "benchmark": listed.benchmark,
                }
            yield row

    def _shown(self, folder: Path) -> str:
        """Path below the served folder."""
        top = None if self._folder is None else self._folder.absolute()
        inside = top is not None and folder != top and folder.is_relative_to(top)
        return str(folder.relative_to(top)) if inside and top is not None else str(folder)

    def _campaign(self, folder: Path) -> str:
        """As it goes on, if runs are missing and somebody carries them out, or none has ended; else the report."""
        from train_bench.campaign import status
        from train_bench.campaign.opened import Campaign

        try:
            standing = status.standing(Campaign.open(folder))
        except TrainBenchError:  # no campaign, or not one that could go on here
            return self._report([folder])
        if standing.running or not standing.finished:
            from train_bench.report.page import write

            return write.live_page(
                folder,
                standing.campaign.jobs,
                standing.records,
                finished=standing.finished,
                running=standing.running,
                expected=standing.expected,
            )
        return self._report([folder])

    def _report(self, folders: Sequence[Path]) -> str:
        from train_bench.campaign import status
        from train_bench.campaign.machine_history import machine_history
        from train_bench.report.page import facts, write

        judged = [(folder, self._makers.judged(folder, self._ruleset)) for folder in folders]
        expected = status.expected_ends(entry for _, tree in judged for entry in tree.entries)
        options = facts.PageOptions(prices={}, expected=expected, history=machine_history(self._store))
        return write.page(judged, options=options, rcp_folders=discover.rcp_folders(), served=True)


def _folders_below(top: Path) -> Iterator[Path]:
    """Folders with a plan or with logs, without following links to others; of a campaign that ran several times, the
    logs that count."""
    for name, below, there in os.walk(top.absolute()):
        below.sort()
        folder = Path(name)
        planned = "plan.json" in there
        if planned:
            below[:] = [one for one in below if one != REPEATED]
        if planned or any(RESULT.fullmatch(file) for file in there):
            yield folder


def _is_result(folder: Path) -> bool:
    """True for a folder with a plan or with logs in itself: a store may be anybody's file and name any folder, and what
    lies below others is not searched."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name == "plan.json" or RESULT.fullmatch(entry.name) for entry in entries)
    except (OSError, ValueError):
        return False


def _results_of(store: Path) -> dict[str, dict[str, Any]]:
    """Facts of each result of a store, by its folder."""
    from train_bench.store.history import select

    query = "SELECT folder, began, coalesce(variant, benchmark), valid, reasons, score_minutes FROM entries"
    return {
        str(folder): {
            "date": str(began or "")[:16].replace("T", " "),
            "benchmark": benchmark,
            "state": state_of(bool(valid), _reasons(reasons)),
            "score_minutes": minutes if isinstance(minutes, int | float) else None,
        }
        for folder, began, benchmark, valid, reasons, minutes in select(store, query)[1]
    }


def _reasons(stored: Any) -> list[Any]:
    """Reasons of a store, which may be anybody's file."""
    try:
        parsed = files.parse_json(str(stored).encode("utf-8", errors="backslashreplace"))
    except files.INVALID_CONTENT:
        return []
    return parsed if isinstance(parsed, list) else []


def folders_of(store: Path) -> list[Path]:
    """Folders of a store, which may be anybody's file, the latest first. Raises `RequestError` where there is none."""
    from train_bench.store.history import select

    _, rows = select(store, "SELECT folder FROM entries ORDER BY began DESC, folder")
    return [Path(folder) for (folder,) in rows if isinstance(folder, str)]
