"""Challenger of a contest from its source: a revision of the repository, a patch, or a folder of files. A patch and a
folder become commits on the frontier, kept by a reference and on no branch, so that all challengers are alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from train_bench.core import git
from train_bench.errors import RequestError

LARGEST_BYTES, MOST_FILES = 2**26, 10_000
"""Largest source, and most files of a folder."""

PASSED_OVER = (".git", "__pycache__")
"""Names of folders and files of a source that are no part of it."""

SUBJECT = "challenger"
"""Of the commit of a source; without its name, so that a renamed source is the same commit."""


def commit_of(top: Path, place: Path, name: str, frontier: str, here: Path) -> str:
    """Commit of a challenger of the contest in `place`; `here` is where a path begins. Raises `RequestError` for what
    is no source."""
    path, revision = here / name, git.commit(top, name)
    if revision is not None and path.exists() and not name.startswith((".", "/")):
        raise RequestError(
            f"{name} is a revision and a file or folder; write ./{name} for the latter, or commit {revision[0][:8]}."
        )
    if revision is not None:
        return revision[0]
    if not path.exists():
        raise RequestError(
            f"There is no revision {name} in {top}, and no patch or folder; give a branch, a tag, a commit or a path."
        )
    if path.is_dir():
        found = {(place / one).relative_to(top).as_posix(): path / one for one in _files(path)}
        return git.commit_of_files(top, frontier, found, SUBJECT)
    if path.stat().st_size > LARGEST_BYTES:
        raise RequestError(f"{path} has {path.stat().st_size} bytes; a patch has at most {LARGEST_BYTES}.")
    return git.commit_of_patch(top, frontier, path, SUBJECT)


def _files(folder: Path) -> Iterator[Path]:
    """Files of a folder by their path in it. Raises `RequestError` for links, and for more than a source has."""
    count = size = 0
    for here, below, names in os.walk(folder):
        below[:] = sorted(set(below) - set(PASSED_OVER))
        for path in (Path(here, name) for name in (*below, *sorted(set(names) - set(PASSED_OVER)))):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise RequestError(f"{path} is a link or no file; a challenger has files alone.")
            if path.is_dir():
                continue
            count, size = count + 1, size + path.stat().st_size
            if count > MOST_FILES or size > LARGEST_BYTES:
                raise RequestError(
                    f"{folder} has more than {MOST_FILES} files or {LARGEST_BYTES} bytes; give a folder of the changed "
                    "files alone."
                )
            yield path.relative_to(folder)
