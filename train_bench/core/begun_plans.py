"""Plans that this user has begun or trusts, remembered by their digests in the user's state folder, and the benchmarks
outside of train_bench that those begun here name.

A plan may be anybody's file, and a benchmark's folder has code: a folder counts only for a plan that was begun here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files, git, plugins
from train_bench.core.job import jobs_of, plan_digest
from train_bench.errors import RequestError

TRUSTED, BEGUN = "trusted", "begun"

WORKTREES = "source"
"""Folder of a comparison of revisions that has a worktree for each side while it runs."""


def remember(kind: str, digest: str, folder: str = "") -> None:
    """Remember a digest, and the `folder` of its benchmark; without a state folder, nothing is."""
    with contextlib.suppress(OSError, RequestError):
        _folder(kind).mkdir(mode=0o700, parents=True, exist_ok=True)
        (_folder(kind) / digest).write_bytes(os.fsencode(folder))


def is_remembered(kind: str, digest: str) -> bool:
    """True for a digest that was remembered."""
    try:
        return (_folder(kind) / digest).is_file()
    except (OSError, RequestError):  # no home folder, or one that cannot be entered
        return False


def find_benchmark(plan: Mapping[str, Any], what: str) -> Path | None:
    """Have this process find the benchmark of a plan that was begun here and whose folder is still there; returns the
    folder, or None for a plan that names none outside of train_bench. Raises `RequestError` for a benchmark that is not
    found; `what` is the argument of the verb."""
    reference = str(plan.get("reference"))
    named = next((job.get("reference_folder") for job in jobs_of(plan)), None)
    if not isinstance(named, str) or reference in plugins.references():
        return None
    folder = _in_its_repository(Path(named))
    if not folder.is_dir():
        raise RequestError(
            f"The benchmark of {what} was in {named}, which is not here; name the folder of a copy in "
            f"{plugins.VARIABLE}."
        )
    if not is_remembered(BEGUN, plan_digest(plan)):
        raise RequestError(
            f"The benchmark of {what} is in {folder}, and the campaign was not begun here. To use that folder, type "
            f"export {plugins.VARIABLE}={shlex.quote(str(folder))} and repeat the command."
        )
    plugins.add(folder)
    return folder


def find_by_digest(digest: object) -> Path | None:
    """As `find_benchmark`, by the digest in a log whose plan is not there; None for a plan that was not begun here."""
    if not isinstance(digest, str) or re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        return None
    try:
        folder = Path(os.fsdecode((_folder(BEGUN) / digest).read_bytes()))
    except (OSError, RequestError):
        return None
    folder = _in_its_repository(folder)
    if not folder.is_absolute() or not folder.is_dir():
        return None
    plugins.add(folder)
    return folder


def _in_its_repository(folder: Path) -> Path:
    """A folder as it is named; of one in a worktree that was removed after its run, that of the repository."""
    parents = [] if folder.is_dir() else folder.parents
    for worktree, place in itertools.pairwise(parents):
        if place.name == WORKTREES and (top := git.top(place.parent)) is not None:
            return top / folder.relative_to(worktree)
    return folder


def _folder(kind: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return files.own_path(home) / "train_bench" / kind
